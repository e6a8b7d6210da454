"""PrefixTable against its slow twin, in any order of events, look-ups and changes of the fleet."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models import prefix_table as models
from vllm_router import _core_testing as testing

# Two of them in one shard.
PREFIXES = st.sampled_from([bytes([first, last]) + bytes(30) for first in (0, 1, 64, 200) for last in (0, 9)])
WORKERS = st.integers(0, 4)


class PrefixTable(RuleBasedStateMachine):
    @initialize(max_entries=st.sampled_from([1, 4, 10, 20]), ttl=st.sampled_from([1.0, 5.0]))
    def start(self, max_entries, ttl):
        self.real = testing.PrefixTable(max_entries, ttl)
        self.slow = models.PrefixTable(max_entries, ttl)
        self.now = 1000.0
        self.set_workers({0, 1, 2, 3})

    @rule(workers=st.sets(WORKERS))
    def set_workers(self, workers):
        self.real.set_workers(sorted(workers))
        self.slow.set_workers(sorted(workers))

    @rule(seconds=st.sampled_from([0.25, 0.75, 1.0, 4.75, 5.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule(
        prefix=PREFIXES,
        worker=WORKERS,
        tokens=st.none() | st.sampled_from([0, 1, 2**32 - 1]),
        gpu=st.booleans(),
    )
    def put(self, prefix, worker, tokens, gpu):
        assert self.real.put(prefix, worker, tokens, gpu, self.now) == self.slow.put(
            prefix, worker, tokens, gpu, self.now
        )

    @rule(prefix=PREFIXES, worker=WORKERS)
    def remove(self, prefix, worker):
        assert self.real.remove(prefix, worker) == self.slow.remove(prefix, worker)

    @rule(worker=WORKERS)
    def remove_all_of(self, worker):
        assert self.real.remove_all_of(worker) == self.slow.remove_all_of(worker)

    @rule(prefix=PREFIXES)
    def find(self, prefix):
        assert sorted(self.real.find(prefix, self.now)) == sorted(self.slow.find(prefix, self.now))

    @rule(prefix=PREFIXES)
    def peek(self, prefix):
        assert sorted(self.real.peek(prefix, self.now)) == sorted(self.slow.peek(prefix, self.now))

    @rule()
    def sweep(self):
        assert self.real.sweep(self.now, 1000) == self.slow.sweep(self.now)

    @rule()
    def clear(self):
        assert self.real.clear() == self.slow.clear()

    @invariant()
    def both_count_the_same(self):
        if hasattr(self, "real"):
            assert self.real.stats() == self.slow.stats()
            assert self.real.stats()[1] <= self.slow.max_entries


TestPrefixTable = PrefixTable.TestCase
