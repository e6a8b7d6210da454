"""The order in which idle connections are closed; tests/property/test_idle_list.py has random histories."""

from vllm_router import _core_testing as testing


def test_the_longest_idle_is_found_first_and_one_that_was_busy_is_last():
    idle = testing.IdleList()
    for number in (1, 2, 3):
        idle.enter(number)
    assert idle.find() == 1
    idle.leave(1)
    idle.enter(1)
    assert idle.find() == 2
    assert len(idle) == 3
