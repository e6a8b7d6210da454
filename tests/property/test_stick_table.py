"""StickTable against its slow twin, in any order of uses."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models import stick_table as models
from vllm_router import _core_testing as testing

NAMES = st.sampled_from(["", "a", "b", "resp_1", "resp_2", "é" * 300])
WORKERS = st.integers(0, 3)


class StickTable(RuleBasedStateMachine):
    @initialize(max_entries=st.integers(1, 4), ttl=st.sampled_from([1.0, 5.0]))
    def start(self, max_entries, ttl):
        self.real = testing.StickTable(max_entries, ttl)
        self.slow = models.StickTable(max_entries, ttl)
        self.now = 1000.0

    @rule(seconds=st.sampled_from([0.25, 0.75, 1.0, 4.75, 5.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule(name=NAMES, worker=WORKERS)
    def stick(self, name, worker):
        self.real.stick(name, worker, self.now)
        self.slow.stick(name, worker, self.now)
        assert len(self.real) == len(self.slow)

    @rule(name=NAMES)
    def find(self, name):
        assert self.real.find(name, self.now) == self.slow.find(name, self.now)

    @rule(name=NAMES)
    def forget(self, name):
        assert self.real.forget(name, self.now) == self.slow.forget(name, self.now)

    @invariant()
    def no_more_than_may_be(self):
        if hasattr(self, "real"):
            assert len(self.real) <= self.slow.max_entries


TestStickTable = StickTable.TestCase
