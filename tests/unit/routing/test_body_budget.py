"""cpp/routing/body_budget.h: memory for bodies that grow. Its twin: tests/models/body_budget.py."""

from vllm_router import _core_testing as testing


def grown(budget, *bodies):
    """New bodies that hold so much of so much, and what came of it."""
    entries = []
    for to, need in bodies:
        entries.append(budget.grow(budget.add(), to, need))
    return entries


def test_what_is_claimed_counts_and_not_what_is_announced():
    """mending row 10: a body that has hardly begun claims hardly anything."""
    budget = testing.BodyBudget(256)
    assert grown(budget, *[(1, 8)] * 240) == ["held"] * 240
    assert budget.in_use == 240
    assert grown(budget, (8, 8)) == ["held"]


def test_the_largest_need_stays_free_beside_what_others_hold():
    budget = testing.BodyBudget(16)
    assert grown(budget, (8, 8), (8, 8), (1, 8)) == ["held", "held", "waiting"]
    budget.complete(0, 8)  # what it holds is still in use
    assert budget.take_granted() == []
    budget.release(0)
    assert budget.take_granted() == [2]


def test_of_many_that_grow_at_once_one_is_always_let_to_its_end():
    budget = testing.BodyBudget(8)
    assert grown(budget, (1, 8)) == ["held"]
    assert grown(budget, (1, 8)) == ["waiting"], "with it, neither could end"
    assert [budget.grow(0, to, 8) for to in (2, 4, 8)] == ["held"] * 3
    budget.complete(0, 8)
    budget.release(0)
    assert budget.take_granted() == [1]
    assert budget.grow(1, 8, 8) == "held"


def test_bodies_that_have_grown_come_before_those_that_have_not():
    budget = testing.BodyBudget(16)
    # 0 is privileged; 1 and 2 together may hold 8.
    assert grown(budget, (2, 8), (4, 8), (4, 8), (4, 8)) == ["held", "held", "held", "waiting"]
    assert budget.grow(1, 8, 8) == "waiting"
    budget.release(2)
    assert budget.take_granted() == [1]
    budget.release(0)
    assert budget.take_granted() == [3]


def test_what_needs_more_than_there_is_never_fits():
    assert grown(testing.BodyBudget(8), (1, 9)) == ["never"]


def test_a_body_is_kept_while_less_than_half_is_in_use():
    budget = testing.BodyBudget(8)
    bodies = [budget.add() for _ in range(6)]
    assert [budget.try_keep(body, 1) for body in bodies] == [True] * 4 + [False] * 2
    budget.release(0)
    assert budget.try_keep(bodies[4], 6) is False
    assert budget.try_keep(bodies[4], 3) is True


def test_a_body_that_may_not_wait_grows_at_once_or_not_at_all():
    budget = testing.BodyBudget(8)
    first, second = budget.add(), budget.add()
    assert budget.grow_now(first, 3) is True
    assert budget.grow_now(first, 9) is False
    assert budget.grow_now(first, 6) is True
    assert budget.grow(second, 3, 3) == "waiting"
    assert budget.grow_now(first, 7) is False  # it is not served before those that wait
    budget.release(first)
    assert budget.take_granted() == [second]


def test_who_leaves_the_line_makes_room_for_those_behind():
    budget = testing.BodyBudget(8)
    assert grown(budget, (4, 4), (8, 8), (1, 4)) == ["held", "waiting", "waiting"]
    assert budget.leave(1) is True
    assert budget.leave(1) is False
    assert budget.take_granted() == [2]


def test_completing_gives_back_what_is_too_much():
    budget = testing.BodyBudget(8)
    assert grown(budget, (8, 8)) == ["held"]
    budget.complete(0, 3)
    assert budget.in_use == 3
