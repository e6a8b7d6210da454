"""cpp/index/coarse_index.h: strides set the range, and blocks are right within it."""

import pytest

from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

PROMPT = hash_blocks(list(range(1, 11)), 1).tolist()  # ten blocks: two strides of four and a half
STRIDES = testing.CoarseIndex.strides_of(PROMPT, 4)


@pytest.fixture
def coarse():
    coarse = testing.CoarseIndex(4, 1000)
    for slot in (1, 2, 3):
        coarse.add(slot)
    return coarse


def test_the_strides_of_a_prompt_are_every_fourth_of_its_chained_blocks():
    assert testing.CoarseIndex.strides_of(PROMPT, 4) == [PROMPT[3], PROMPT[7]]
    assert testing.CoarseIndex.strides_of(PROMPT[:3], 4) == []


@pytest.mark.parametrize(
    ("strides", "own", "refined"),
    [
        (2, 10, 10),  # its own rest within the stride counts
        (2, 7, 8),  # others sent more
        (2, 0, 8),
        (1, 10, 7),  # others' traffic evicted the second stride
        (1, 5, 5),
        (0, 3, 3),
        (0, 10, 3),
    ],
)
def test_a_match_is_brought_into_the_range_of_its_strides(coarse, strides, own, refined):
    coarse.record(1, STRIDES[:strides])
    assert coarse.refine(PROMPT, {1: own}) == {1: refined}


def test_a_worker_that_only_others_sent_to_is_found(coarse):
    coarse.record(2, STRIDES)
    assert coarse.refine(PROMPT, {}) == {2: 8}


def test_the_capacity_is_in_blocks_and_evicts_the_oldest_strides():
    coarse = testing.CoarseIndex(4, 8)  # two strides
    coarse.add(1)
    other = testing.CoarseIndex.strides_of(hash_blocks([9] * 8, 1).tolist(), 4)
    coarse.record(1, STRIDES)
    coarse.record(1, other[:1])
    assert coarse.refine(PROMPT, {1: 10}) == {1: 7}  # the later stride of the older prompt went
    coarse.set_capacity(1, 4)
    assert coarse.strides == 1


def test_unnamed_strides_take_room_and_are_withdrawn_with_their_claim():
    coarse = testing.CoarseIndex(4, 12)  # three strides
    coarse.add(1)
    coarse.record(1, STRIDES)
    claim = coarse.record_open(1, [], unnamed=2)
    assert (coarse.refine(PROMPT, {}), coarse.strides) == ({1: 4}, 3)
    coarse.withdraw(claim)
    assert (coarse.refine(PROMPT, {}), coarse.strides) == ({1: 4}, 1)
    coarse.record(1, [], unnamed=2)
    coarse.record(1, STRIDES)
    assert (coarse.refine(PROMPT, {}), coarse.strides) == ({1: 8}, 3)


def test_a_slot_that_was_removed_and_added_again_holds_nothing(coarse):
    coarse.record(1, STRIDES)
    coarse.remove(1)
    assert coarse.refine(PROMPT, {}) == {}
    coarse.record(1, STRIDES)  # of no worker: no effect
    coarse.add(1)
    assert coarse.refine(PROMPT, {}) == {}


def test_a_claim_that_is_withdrawn_leaves_nothing(coarse):
    claim = coarse.record_open(1, STRIDES)
    assert coarse.refine(PROMPT, {}) == {1: 8}
    coarse.withdraw(claim)
    assert coarse.refine(PROMPT, {}) == {}
