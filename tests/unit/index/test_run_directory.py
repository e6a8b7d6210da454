"""cpp/index/run_directory.h against a dict."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["put", "replace", "erase"]), st.integers(0, 40)), max_size=200
)


@given(OPERATIONS)
def test_it_is_a_dict(operations):
    directory, slow = testing.RunDirectory(), {}
    for run, (operation, head) in enumerate(operations):
        if operation == "put" and head not in slow:
            directory.put(head, run)
            slow[head] = run
        elif operation == "replace" and head in slow:
            directory.replace(head, run)
            slow[head] = run
        elif operation == "erase" and head in slow:
            directory.erase(head)
            del slow[head]
        assert len(directory) == len(slow)
        assert directory.find(head) == slow.get(head)
    assert {head: directory.find(head) for head in range(41)} == {head: slow.get(head) for head in range(41)}


def test_it_grows_in_steps_and_loses_nothing_on_the_way(rng):
    directory, slow = testing.RunDirectory(), {}
    heads = [rng.getrandbits(64) for _ in range(20_000)]
    for run, head in enumerate(heads):
        directory.put(head, run)
        slow[head] = run
        if run % 3 == 0:
            gone = rng.choice(heads[: run + 1])
            if gone in slow:
                directory.erase(gone)
                del slow[gone]
        elif run % 3 == 1:
            changed = rng.choice(heads[: run + 1])
            if changed in slow:
                directory.replace(changed, run)
                slow[changed] = run
        for asked in rng.sample(heads[: run + 1], min(3, run + 1)):
            assert directory.find(asked) == slow.get(asked)
    assert all(directory.find(head) == slow.get(head) for head in heads)
    assert directory.growths >= 5
    assert directory.capacity <= 8 * len(slow)


def test_coming_and_going_at_a_constant_size_takes_no_more_memory(rng):
    directory = testing.RunDirectory()
    live = [rng.getrandbits(64) for _ in range(100)]
    for head in live:
        directory.put(head, 1)
    most = 0
    for _ in range(50_000):
        at = rng.randrange(100)
        directory.erase(live[at])
        live[at] = rng.getrandbits(64)
        directory.put(live[at], 1)
        most = max(most, directory.bytes)
    assert all(directory.find(head) == 1 for head in live)
    assert most <= 3 * 512 * 16 + 200
    assert directory.growths > 100


def test_after_most_went_it_shrinks_by_and_by(rng):
    directory = testing.RunDirectory()
    heads = [rng.getrandbits(64) for _ in range(30_000)]
    for head in heads:
        directory.put(head, 1)
    full = directory.capacity
    for head in heads[10:]:
        directory.erase(head)
    for _ in range(60_000):
        head = rng.getrandbits(64)
        directory.put(head, 2)
        directory.erase(head)
    assert directory.capacity < full / 20
    assert all(directory.find(head) == 1 for head in heads[:10])


def test_a_hash_of_zero_is_a_hash_like_others():
    directory = testing.RunDirectory()
    assert directory.find(0) is None
    directory.put(0, 7)
    directory.put(1, 8)
    assert (directory.find(0), directory.find(1), len(directory)) == (7, 8, 2)
    directory.replace(0, 9)
    assert directory.find(0) == 9
    directory.erase(0)
    assert (directory.find(0), directory.find(1), len(directory)) == (None, 8, 1)
