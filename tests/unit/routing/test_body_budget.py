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


def test_of_many_that_grow_at_once_one_is_always_let_to_its_end():
    budget = testing.BodyBudget(8)
    assert grown(budget, (1, 8)) == ["held"]
    assert grown(budget, (1, 8)) == ["waiting"], "with it, neither could end"
    assert [budget.grow(0, to, 8) for to in (2, 4, 8)] == ["held"] * 3
    budget.complete(0, 8)
    budget.release(0)
    assert budget.take_granted() == [1]
    assert budget.grow(1, 8, 8) == "held"
