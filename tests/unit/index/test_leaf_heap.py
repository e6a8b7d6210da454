"""cpp/index/leaf_heap.h against a dictionary and min()."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

RANKS = st.integers(0, 50)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), RANKS),
        st.tuples(st.just("remove"), st.integers(0, 1000)),
        st.tuples(st.just("update"), st.integers(0, 1000), RANKS),
    ),
    max_size=200,
)


@given(STEPS)
def test_the_smallest_rank_is_on_top_whatever_comes_and_goes(steps):
    heap, known = testing.LeafHeap(), {}
    for number, (step, *values) in enumerate(steps):
        if step == "push":
            leaf = heap.push(values[0], number)
            assert leaf not in known
            known[leaf] = (values[0], number)
        elif known:
            leaf = sorted(known)[values[0] % len(known)]
            if step == "remove":
                heap.remove(leaf)
                del known[leaf]
            else:
                heap.update(leaf, values[1])
                known[leaf] = (values[1], known[leaf][1])
        assert len(heap) == len(known)
        if known:
            rank, node = heap.top()
            assert (rank, node) in known.values()
            assert rank == min(rank for rank, _ in known.values())
            assert heap.last_node in [node for _, node in known.values()]


def test_a_heap_emptied_from_the_top_is_a_sorted_list():
    heap = testing.LeafHeap()
    leaves = {number: heap.push(number * 7919 % 1009, number) for number in range(1009)}
    ranks = []
    while len(heap):
        rank, node = heap.top()
        ranks.append(rank)
        heap.remove(leaves[node])
    assert ranks == sorted(ranks) == list(range(1009))
