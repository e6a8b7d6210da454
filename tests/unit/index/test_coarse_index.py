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
