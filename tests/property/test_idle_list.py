"""IdleList against its slow twin, over random histories of connections that become idle and busy."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.models.idle_list import IdleList as SlowList
from vllm_router import _core_testing as testing

NUMBERS = st.integers(0, 40)


class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.real = testing.IdleList()
        self.slow = SlowList(testing.IDLE_LIST_MAX_LOOKS)

    @rule(numbers=st.lists(NUMBERS, max_size=30, unique=True))
    def enter(self, numbers):
        for number in numbers:
            if number not in self.slow.order:
                self.real.enter(number)
                self.slow.enter(number)

    @rule(number=NUMBERS)
    def leave(self, number):
        self.real.leave(number)
        self.slow.leave(number)

    @rule(busy=st.sets(NUMBERS))
    def find(self, busy):
        assert self.real.find(busy) == self.slow.find(busy)

    @rule()
    def claim(self):
        assert self.real.claim() == self.slow.claim()

    @precondition(lambda self: self.slow.claims > 0)
    @rule()
    def end_claim(self):
        self.real.end_claim()
        self.slow.end_claim()

    @invariant()
    def both_hold_as_many(self):
        assert len(self.real) == len(self.slow.order)


TestIdleList = Machine.TestCase
