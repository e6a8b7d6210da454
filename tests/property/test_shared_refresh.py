"""SharedRefresh against its slow twin: requests, refreshes and changes of the fleet, in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.models.shared_refresh import SharedRefresh as SlowRefresh
from vllm_router import _core_testing as testing


class Machine(RuleBasedStateMachine):
    @initialize(fresh=st.integers(1, 10), usable=st.integers(1, 40))
    def start(self, fresh, usable):
        self.real, self.slow = testing.SharedRefresh(fresh, usable), SlowRefresh(fresh, usable)
        self.now = self.version = 0

    @rule(passed=st.integers(0, 15))
    def time_passes(self, passed):
        self.now += passed

    @rule()
    def the_fleet_changes(self):
        self.version += 1

    @rule()
    def ask(self):
        assert self.real.ask(self.now, self.version) == self.slow.ask(self.now, self.version)
        assert self.real.is_usable(self.now) == self.slow.is_usable(self.now)
        assert self.real.begun == self.slow.begun

    @precondition(lambda self: self.slow.running is not None)
    @rule()
    def end(self):
        self.real.end(self.now)
        self.slow.end(self.now)


TestSharedRefresh = Machine.TestCase
