"""Evictables against its slow twin, and what it promises, after any story of requests."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import evictables as twin
from vllm_router import _core_testing as testing

WORKERS = st.integers(0, 2)
CLASSES = {
    "": [],
    "class batch evict=true": ["batch"],
    "class default evict=true\nclass batch evict=true": ["default", "batch"],
}
STEPS = st.one_of(
    st.tuples(
        st.just("add"),
        WORKERS,
        st.sampled_from(["default", "batch"]),
        st.sampled_from([0, 8000, 8001, 9000, 20_000, 90_000]),
        st.integers(0, 3),
    ),
    st.tuples(st.just("remove"), st.integers(0, 99)),
    st.tuples(
        st.just("evict"), WORKERS, st.sampled_from([0.0, 1000.0, 8000.0]), st.sampled_from(sorted(CLASSES))
    ),
    st.tuples(st.just("wait"), st.sampled_from([1, 250, 999, 1000, 4000])),
)


@given(st.lists(STEPS, max_size=60))
def test_it_is_its_slow_twin_and_evicts_seldom_and_nobody_thrice(story):
    fast, slow = testing.Evictables(), twin.Evictables()
    known, now_ms = {}, 0
    last_ms = {}
    for what, *arguments in story:
        if what == "wait":
            now_ms += arguments[0]
        elif what == "add":
            worker, of_class, tokens, evictions = arguments
            number = fast.add(worker, of_class, tokens, now_ms, evictions)
            known[number] = twin.Request(number, worker, of_class, tokens, now_ms, evictions)
            slow.add(known[number])
        elif what == "remove":
            number = arguments[0] % (len(known) + 1)
            if number in known:  # also one that is listed no more
                fast.remove(known[number].worker, number)
                slow.remove(number)
        else:
            worker, pace, lines = arguments
            got = fast.evict_at(worker, now_ms, pace, lines)
            assert got == slow.evict_at(worker, now_ms, pace, CLASSES[lines])
            if got is not None:
                evicted = known[got]
                assert evicted.worker == worker
                assert evicted.evictions < 2
                assert evicted.left(pace, now_ms) > 8000
                assert now_ms - last_ms.get(worker, -1000) >= 1000
                last_ms[worker] = now_ms
        assert fast.size == len(slow.requests)
    assert len(set(fast.evicted)) == len(fast.evicted)
