"""cpp/base/snapshot.h in one thread; tests/stress/snapshot.cc does it in many."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


def test_publishing_replaces_the_value_and_counts():
    snapshot = testing.StringSnapshot("one")
    assert (snapshot.load(), snapshot.version) == ("one", 0)
    snapshot.publish("two")
    assert (snapshot.load(), snapshot.version) == ("two", 1)


def test_a_cached_reader_sees_a_new_value_at_its_next_get():
    snapshot = testing.StringSnapshot("one")
    early, late = snapshot.cached(), snapshot.cached()
    assert early.get() == "one"
    snapshot.publish("two")
    assert (early.get(), late.get()) == ("two", "two")


def test_a_cached_reader_keeps_its_value_and_lets_go_at_its_next_get():
    #  cell  [1]       cell  [2]           cell  [2]
    #  cached -^       cached -> 1         cached -^      the old value lives as long as somebody holds it
    snapshot = testing.StringSnapshot("one")
    cached = snapshot.cached()
    assert snapshot.holders() == 1
    cached.get()
    assert snapshot.holders() == 2
    snapshot.publish("two")
    assert snapshot.holders() == 1
    cached.get()
    assert snapshot.holders() == 2


def test_a_cached_reader_keeps_the_snapshot_alive():
    cached = testing.StringSnapshot("one").cached()
    assert cached.get() == "one"


@given(st.lists(st.sampled_from(["publish", "load", "get"])))
def test_every_reader_sees_the_last_value_published(steps):
    snapshot, last = testing.StringSnapshot("0"), 0
    cached = snapshot.cached()
    for step in steps:
        if step == "publish":
            last += 1
            snapshot.publish(str(last))
        else:
            read = snapshot.load if step == "load" else cached.get
            assert read() == str(last)
    assert snapshot.version == last
