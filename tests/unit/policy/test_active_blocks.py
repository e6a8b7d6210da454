"""cpp/policy/active_blocks.h against sets of blocks."""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_auto import PROMPTS, chain
from vllm_router import _core_testing as testing


def test_the_example():
    active = testing.ActiveBlocks()
    first = active.open(3, 7, [1, 2, 3, 4])
    active.open(3, 7, [1, 2, 9])
    assert active.count(3, 7) == 5
    assert active.count_leading(3, 7, [1, 2, 3, 5]) == 3
    active.close(3, 7, first)
    assert active.count(3, 7) == 3
    assert active.count_leading(3, 7, [1, 2, 3, 5]) == 2
    active.close(3, 7, first)
    active.close(3, 7, 0)
    assert active.count(3, 7) == 3


def test_the_requests_of_a_worker_that_left_are_not_its_successor_s():
    active = testing.ActiveBlocks()
    request = active.open(0, 1, [1, 2])
    assert active.count(0, 2) == active.count_leading(0, 2, [1, 2]) == 0
    assert active.open(0, 2, [3]) > request
    active.close(0, 1, request)
    active.close(0, 2, request)
    assert (active.count(0, 1), active.count(0, 2)) == (0, 1)


STEPS = st.one_of(
    st.tuples(st.just("open"), st.integers(0, 1), PROMPTS),
    st.tuples(st.just("close"), st.integers(0, 20), st.just([])),
)


@given(story=st.lists(STEPS, max_size=60), asked=PROMPTS)
def test_distinct_blocks_of_open_requests_count(story, asked):
    active, requests = testing.ActiveBlocks(), []
    for what, which, prompt in story:
        if what == "open":
            requests.append((which, active.open(which, which, chain(prompt)), chain(prompt)))
        elif requests:
            worker, request, _ = requests.pop(which % len(requests))
            active.close(worker, worker, request)
        for worker in (0, 1):
            distinct = {block for other, _, blocks in requests if other == worker for block in blocks}
            assert active.count(worker, worker) == len(distinct)
            assert active.count_leading(worker, worker, chain(asked)) == len(distinct & {*chain(asked)})
