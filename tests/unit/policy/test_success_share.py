"""cpp/policy/success_share.h."""

import random

from vllm_router import _core_testing as testing


def test_it_is_the_share_of_the_last_hundred():
    share, ends, dice = testing.SuccessShare(), [], random.Random(1)
    assert share.value == 1
    for _ in range(450):
        ends.append(dice.random() < 0.7)
        share.record(ends[-1])
        assert share.value == sum(ends[-100:]) / len(ends[-100:])
    share.clear()
    assert share.value == 1
    share.record(False)
    assert share.value == 0
