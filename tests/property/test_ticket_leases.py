"""cpp/routing/ticket_leases.h against its slow twin."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.models.ticket_leases import TicketLeases
from vllm_router import _core_testing as testing

TICKETS = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), TICKETS, st.integers(-3, 12)),
        st.tuples(st.just("remove"), TICKETS),
        st.tuples(st.just("finish"), TICKETS),
        st.tuples(st.just("expire"), st.integers(-3, 12)),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_leases_end_the_tickets_that_are_due_and_no_others(steps: list[Any]) -> None:
    tickets, twin = testing.TicketHarness(), TicketLeases()
    numbers = [tickets.make(1, 2, 3) for _ in range(5)]
    twin.open = set(numbers)
    for step, *arguments in steps:
        if step == "set":
            number, due = arguments
            tickets.set_lease(number, due)
            twin.due[number] = due
        elif step == "remove":
            tickets.remove_lease(arguments[0])
            twin.due.pop(arguments[0], None)
        elif step == "finish":
            assert tickets.finish(arguments[0]) == (arguments[0] in twin.open)
            twin.open.discard(arguments[0])
        else:
            assert tickets.expire(arguments[0]) == twin.expire(arguments[0])
        assert tickets.leases == (twin.next_due(), twin.expired)
        assert {number for number in numbers if not tickets.finished(number)} == twin.open
        assert tickets.load[0] == len(twin.open)
    for number in numbers:
        tickets.remove_lease(number)
