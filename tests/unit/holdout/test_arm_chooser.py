"""cpp/holdout/arm_chooser.h: which conversations are held out."""

import math

import pytest

from vllm_router import _core_testing as testing

COUNT = 20_000


def held_out(secret, percent, count=COUNT):
    arms = testing.ArmChooser(secret, percent)
    return {conversation for conversation in range(count) if arms.of(conversation) == "holdout"}


@pytest.mark.parametrize("percent", [0.5, 1, 5, 20])
def test_about_so_many_are_held_out(percent):
    expected = COUNT * percent / 100
    assert abs(len(held_out("a secret", percent)) - expected) < 4 * math.sqrt(expected)


def test_none_is_with_0_and_all_others_are_the_policys():
    assert held_out("a secret", 0) == set()
    assert {testing.ArmChooser("a secret", 20).of(i) for i in range(100)} == {"policy", "holdout"}


def test_two_routers_with_one_secret_agree_also_after_a_restart():
    assert held_out("a secret", 1) == held_out("a secret", 1)


def test_with_another_secret_others_are_held_out():
    both = held_out("a secret", 20) & held_out("another secret", 20)
    expected = COUNT * 0.2 * 0.2
    assert abs(len(both) - expected) < 5 * math.sqrt(expected)


def test_a_larger_percentage_holds_out_more_and_keeps_those_that_were():
    assert held_out("a secret", 1) < held_out("a secret", 5)
