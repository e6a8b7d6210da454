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


def test_a_connection_with_a_request_is_passed_over_and_the_search_ends():
    idle = testing.IdleList()
    many = testing.IDLE_LIST_MAX_LOOKS
    for number in range(many + 1):
        idle.enter(number)
    assert idle.find(busy=set(range(many - 1))) == many - 1
    assert idle.find(busy=set(range(many))) is None


def test_no_more_are_claimed_than_there_are():
    idle = testing.IdleList()
    assert not idle.claim()
    idle.enter(1)
    idle.enter(2)
    assert [idle.claim() for _ in range(3)] == [True, True, False]
    idle.end_claim()
    assert idle.claim()


def test_leaving_twice_does_nothing():
    idle = testing.IdleList()
    idle.enter(1)
    idle.leave(1)
    idle.leave(1)
    assert len(idle) == 0
    assert idle.find() is None
