"""cpp/policy/lost_blocks.h: what is asked for again and nobody has."""

import pytest

from vllm_router import _core_testing as testing

# The 16 lowest bits above 20 choose a sixteenth of all; below 2^20 all are taken.
PROMPT = list(range(1, 9))


def test_a_prompt_that_nobody_has_seen_has_lost_nothing():
    lost = testing.LostBlocks()
    lost.learn(PROMPT, 0)
    assert lost.share == 0


def test_what_comes_again_is_held_or_lost():
    lost = testing.LostBlocks()
    lost.learn(PROMPT, 0)
    lost.learn(PROMPT, 2)  # 6 of 8 are lost: the mean of 0 and 3/4
    assert lost.share == pytest.approx(0.375)
    lost.learn(PROMPT, 8)
    assert lost.share == pytest.approx(0.25)


def test_a_sixteenth_of_the_blocks_is_remembered():
    lost = testing.LostBlocks()
    others = [(1 << 20) + i for i in range(8)]
    lost.learn(others, 0)
    lost.learn(others, 0)
    assert lost.share == 0
    every_sixteenth = [(number << 20) + number for number in range(64)]
    lost.learn(every_sixteenth, 0)
    lost.learn(every_sixteenth, 0)  # 4 of them, all lost
    assert lost.share == pytest.approx(0.5)


def test_a_block_that_took_the_place_of_another_is_not_it():
    lost = testing.LostBlocks()
    lost.learn([5], 0)
    lost.learn([5 + (1 << 33)], 0)
    assert lost.share == 0
    lost.learn([5], 0)  # forgotten meanwhile
    assert lost.share == 0


def test_an_empty_prompt_changes_nothing():
    lost = testing.LostBlocks()
    lost.learn(PROMPT, 0)
    lost.learn(PROMPT, 0)
    before = lost.share
    lost.learn([], 0)
    assert lost.share == before
