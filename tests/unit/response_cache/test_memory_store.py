"""cpp/response_cache/memory_store.h against tests/models/memory_store.py."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.memory_store import MemoryStore
from vllm_router import _core_testing as testing

ENTRY = testing.MemoryStore.entry_bytes
SWEPT = testing.MemoryStore.swept_per_set
SECOND = 10**9


def key(number):
    return number.to_bytes(32, "big")


def test_the_least_recently_used_leaves():
    store = testing.MemoryStore(2, 1 << 20)
    for number in (1, 2):
        assert store.set(key(number), b"x", SECOND, 0)
    assert store.get(key(1), 0) == b"x"
    assert store.set(key(3), b"y", SECOND, 0)
    assert store.get(key(2), 0) is None
    assert [store.get(key(number), 0) for number in (1, 3)] == [b"x", b"y"]
    assert store.stats() == {
        "entries": 2,
        "bytes": 2 * ENTRY + 2,
        "evicted": 1,
        "evicted_bytes": ENTRY + 1,
        "expired": 0,
    }


def test_a_value_of_more_than_a_quarter_is_not_kept_and_removes_what_was_there():
    store = testing.MemoryStore(10, 4 * (ENTRY + 8))
    assert store.set(key(1), b"x" * 8, SECOND, 0)
    assert not store.set(key(1), b"x" * 9, SECOND, 0)
    assert store.get(key(1), 0) is None


def test_a_value_lives_until_it_expires():
    store = testing.MemoryStore(10, 1 << 20)
    assert not store.set(key(1), b"x", 5, 5)
    assert store.set(key(1), b"x", 6, 5)
    assert store.get(key(1), 5) == b"x"
    assert store.get(key(1), 6) is None
    assert store.stats()["expired"] == 1
    assert store.stats()["entries"] == 0


def test_a_large_store_is_divided_and_keeps_its_bounds():
    capacity = testing.MemoryStore.sharded_capacity
    store = testing.MemoryStore(capacity, 1 << 30)
    keys = [bytes(8) + bytes([number % 256]) + number.to_bytes(23, "big") for number in range(2 * capacity)]
    for each in keys:
        store.set(each, b"", SECOND, 0)
    assert store.stats()["entries"] == capacity
    assert store.stats()["evicted"] == capacity
    # Each part has the last that were its own.
    assert all(store.get(each, 0) is not None for each in keys[capacity:])
    assert store.clear() == capacity
    assert store.stats()["bytes"] == 0


keys = st.integers(0, 7)
values = st.integers(0, 120).map(lambda size: b"v" * size)
steps = st.one_of(
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("set"), keys, values, st.integers(1, 9)),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("clear")),
    st.tuples(st.just("sweep"), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(0, 4)),
    st.tuples(st.just("limits"), st.integers(1, 6), st.integers(4 * ENTRY, 9 * ENTRY)),
)


@given(st.integers(1, 6), st.integers(4 * ENTRY, 9 * ENTRY), st.lists(steps, max_size=60))
def test_a_store_is_its_slow_twin(entries, size, history):
    store, twin = testing.MemoryStore(entries, size), MemoryStore(entries, size, ENTRY, SWEPT)
    now = 0
    for name, *arguments in history:
        if name == "wait":
            now += arguments[0]
            continue
        if name in ("get", "delete"):
            arguments = [key(arguments[0])]
        if name == "set":
            arguments = [key(arguments[0]), arguments[1], now + arguments[2]]
        if name in ("get", "set"):
            arguments.append(now)
        if name == "sweep":
            arguments = [now, arguments[0]]
        if name == "limits":
            name = "set_limits"
        assert getattr(store, name)(*arguments) == getattr(twin, name)(*arguments)
        assert store.stats() == twin.stats()
