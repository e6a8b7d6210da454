"""cpp/peer_sync/admin_facts.h: of two routers that contradict each other the later one counts, everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import admin_facts
from vllm_router import _core_testing as testing

URLS = (b"http://a:8000", b"http://b:8000")
FACTS = st.tuples(
    st.integers(0, 1),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4000),
    st.integers(0, 60_000),
    st.integers(0, 5),
    st.integers(1, 3),
    st.sampled_from(URLS),
)


def fact(url=URLS[0], holds=True, at_ms=1000, router=1, kind=0):
    return (kind, holds, False, 1000, 0, at_ms, router, url)


@given(said=st.lists(FACTS, max_size=20), now=st.integers(0, 10), known=st.sets(st.sampled_from(URLS)))
def test_it_is_as_the_slow_twin(said, now, known):
    facts, twin = testing.AdminFacts(), admin_facts.AdminFacts()
    for one in said:
        assert facts.merge(one) == twin.merge(one)
    for after in (now, admin_facts.KEPT_MS + now):
        assert [facts.counts(one) for one in said] == [twin.counts(one) for one in said]
        facts.forget(after, known)
        twin.forget(after, known)
        assert facts.all() == twin.all()


@given(
    said=st.lists(FACTS, max_size=12, unique_by=lambda one: (one[0], one[7], one[5], one[6])), data=st.data()
)
def test_in_whatever_order_they_are_heard_all_routers_know_the_same(said, data):
    routers = [testing.AdminFacts(), testing.AdminFacts()]
    for router in routers:
        for one in data.draw(st.permutations(said)):
            router.merge(one)
            router.merge(one)  # again
    assert routers[0].all() == routers[1].all()


def test_there_is_a_limit():
    facts = testing.AdminFacts()
    assert all(facts.merge(fact(b"http://w%d" % number)) for number in range(4096))
    assert not facts.merge(fact(b"http://one-more"))
    assert facts.merge(fact(b"http://w7", holds=False, at_ms=2000))
    facts.forget(2000 + admin_facts.KEPT_MS + 1, set())
    assert facts.merge(fact(b"http://one-more"))


def test_a_worker_that_was_drained_after_it_was_added_is_added_nowhere_any_more():
    facts = testing.AdminFacts()
    added, drained = fact(at_ms=1000), fact(at_ms=2000, kind=1)
    assert facts.merge(added)
    assert facts.counts(added)
    assert facts.merge(drained)
    assert (facts.counts(added), facts.counts(drained)) == (False, True)
    anew = fact(at_ms=3000)
    assert facts.merge(anew)
    assert (facts.counts(anew), facts.counts(drained)) == (True, False)
    assert facts.merge(fact(at_ms=4000, kind=1, holds=False))
    assert facts.counts(anew)


def test_drained_workers_that_are_gone_do_not_fill_it_for_ever():
    facts = testing.AdminFacts()
    for number in range(2048):
        assert facts.merge(fact(b"http://w%d" % number, at_ms=1000))
        assert facts.merge(fact(b"http://w%d" % number, at_ms=2000, kind=1))
    assert not facts.merge(fact(b"http://one-more"))
    facts.forget(2000 + admin_facts.KEPT_MS, set())
    assert len(facts.all()) == 4096
    facts.forget(2001 + admin_facts.KEPT_MS, {b"http://w7"})
    assert facts.all() == [fact(b"http://w7", at_ms=1000), fact(b"http://w7", at_ms=2000, kind=1)]


def router(number, **options):
    made = testing.PeerRouter(number, **options)
    made.declare([])
    return made


def test_what_was_said_reaches_all_and_those_who_come_later():
    one, other, late = router(1), router(2), router(3)
    one.write_frames(0.0)
    one.write_frames(0.25)
    assert one.tell_fact(fact())
    (frame,) = one.write_frames(0.5)
    assert other.read_facts(frame, 0.5) == [fact()]
    assert other.read_facts(frame, 0.5) == []
    assert one.write_frames(0.75)[0] not in (frame,)
    # With the next full frame, of any that knows it.
    (full,) = other.write_frames(5.0)
    assert late.read_facts(full, 5.0) == [fact()]
    assert late.facts() == one.facts() == [fact()]


def test_an_older_word_is_of_no_effect():
    one, other = router(1), router(2)
    assert other.tell_fact(fact(holds=False, at_ms=2000, router=2))
    assert one.tell_fact(fact())
    for frame in one.write_frames(0.0):
        assert other.read_facts(frame, 0.0) == []
    for frame in other.write_frames(0.0):
        assert one.read_facts(frame, 0.0) == [fact(holds=False, at_ms=2000, router=2)]
    assert not one.tell_fact(fact(at_ms=1500))


def test_many_take_several_frames():
    one, other = router(1), router(2)
    said = [fact(b"http://w%d/" % number + b"x" * 1000) for number in range(1000)]
    for each in said:
        assert one.tell_fact(each)
    frames = one.write_frames(0.0)
    assert len(frames) > 1
    heard = [each for frame in frames for each in other.read_facts(frame, 0.0)]
    assert sorted(heard) == sorted(said)


@pytest.mark.parametrize("length", [4096, 4097])
def test_a_url_that_no_frame_holds_is_not_told(length):
    assert router(1).tell_fact(fact(b"u" * length)) is (length == 4096)


def test_what_was_said_in_the_future_is_not_believed():
    """Row 8: no admin could contradict it ever after."""
    one, other = router(1), router(2)
    assert one.tell_fact(fact(at_ms=2**64 - 1))
    assert one.tell_fact(fact(url=URLS[1], at_ms=1500))
    other.trust_facts_until(2000)
    (frame,) = one.write_frames(0.0)
    assert other.read_facts(frame, 0.5) == [fact(url=URLS[1], at_ms=1500)]
    assert other.tell_fact(fact(holds=False, at_ms=2000, router=2))
