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

    @rule(name=NAMES, moves=st.booleans())
    def find_or_stick(self, name, moves):
        """To the worker with the fewest names, if it is new or `moves`."""
        seen = []

        def place(known, counts):
            seen.append((known, counts))
            fewest = min(range(3), key=lambda worker: counts.get(worker, 0))
            return None if moves and fewest == 2 else fewest if moves or known is None else known

        real = self.real.find_or_stick(name, self.now, place)
        assert real == self.slow.find_or_stick(name, self.now, place)
        assert seen[0] == seen[1]

    @rule(name=NAMES)
    def forget(self, name):
        assert self.real.forget(name, self.now) == self.slow.forget(name, self.now)

    @invariant()
    def no_more_than_may_be(self):
        if hasattr(self, "real"):
            assert len(self.real) <= self.slow.max_entries


TestStickTable = StickTable.TestCase
