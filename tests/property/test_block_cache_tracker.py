"""cpp/index/block_cache_tracker.h against its slow twin, over random histories."""

import copy
import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.block_cache_tracker import BlockCacheTracker as SlowTracker
from vllm_router import BlockCacheTracker, hash_blocks
from vllm_router import _core_testing as testing

WORKERS = st.sampled_from(["w0", "w1", "w2", "w3"])
UNNAMED = st.sampled_from([0, 0, 0, 1, 3, 7])
PROMPTS = st.lists(st.sampled_from([0, 0, 0, 0, 1]), max_size=20)


def chain(prompt):
    return hash_blocks(prompt, 1).tolist()


class Machine(RuleBasedStateMachine):
    @initialize(capacity=st.sampled_from([0, 1, 5, 12, 30, 1000]))
    def begin(self, capacity):
        self.tracker, self.slow = BlockCacheTracker(1, capacity), SlowTracker(capacity)

    @rule(worker=WORKERS, prompt=PROMPTS)
    def record(self, worker, prompt):
        self.tracker.record_request(prompt, worker)
        self.slow.record(worker, chain(prompt))

    @rule(prompts=st.lists(st.tuples(WORKERS, PROMPTS), max_size=5))
    def record_batch(self, prompts):
        offsets = np.cumsum([0, *(len(prompt) for _, prompt in prompts)])
        tokens = np.array([token for _, prompt in prompts for token in prompt], dtype=np.uint32)
        self.tracker.record_batch(tokens, offsets, [worker for worker, _ in prompts])
        for worker, prompt in prompts:
            self.slow.record(worker, chain(prompt))

    @rule(worker=WORKERS, max_blocks=st.integers(0, 20))
    def evict(self, worker, max_blocks):
        if worker in self.slow.used:
            assert self.tracker.evict_worker(worker, max_blocks) == self.slow.evict(worker, max_blocks)

    @rule(worker=WORKERS)
    def remove(self, worker):
        if worker in self.slow.used:
            self.tracker.remove_worker(worker)
            self.slow.remove(worker)

    @rule(capacity=st.integers(0, 40))
    def set_capacity(self, capacity):
        self.tracker.set_capacity(capacity)
        self.slow.capacity = capacity
        for worker in self.slow.used:
            self.slow.evict(worker, self.slow.capacity_of(worker))

    @rule(worker=WORKERS, capacity=st.integers(0, 40))
    def set_capacity_of_one(self, worker, capacity):
        if worker in self.slow.used:
            self.tracker.set_capacity(capacity, worker)
            self.slow.own_capacity[worker] = capacity
            self.slow.evict(worker, capacity)

    @rule(runs=st.integers(0, 4))
    def sweep(self, runs):
        self.tracker.sweep(runs)

    @rule(how=st.sampled_from([pickle.dumps, copy.deepcopy]))
    def reload(self, how):
        """mending row 47: from here on the history goes on with what was loaded."""
        before = self.tracker
        self.tracker = pickle.loads(how(before)) if how is pickle.dumps else how(before)
        assert self.tracker.workers == before.workers
        counts = ("recorded_requests", "recorded_blocks", "evicted_blocks", "segments", "pairs", "blocks")
        assert [self.tracker.stats()[name] for name in counts] == [before.stats()[name] for name in counts]

    @rule(prompt=PROMPTS, some=st.sets(WORKERS))
    def ask(self, prompt, some):
        expected = self.slow.match(chain(prompt))
        assert self.tracker.match(prompt) == expected
        for workers in (None, some):
            allowed = {w: d for w, d in expected.items() if workers is None or w in workers}
            best = self.tracker.find_best_worker(prompt, workers=workers)
            if not allowed:
                assert best is None
            else:
                assert best.matched_blocks == allowed[best.worker] == max(allowed.values())
                assert best.total_blocks == len(prompt)

    @invariant()
    def counts_agree(self):
        for worker, blocks in self.slow.used.items():
            assert self.tracker.block_count(worker) == len(blocks)
        assert {worker for worker in self.tracker.workers if worker} == set(self.slow.used)

    def teardown(self):
        self.tracker.clear()
        while self.tracker.sweep():
            pass
        stats = self.tracker.stats()
        assert [stats[name] for name in ("blocks", "pairs", "runs", "segments")] == [0, 0, 0, 0]


Machine.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 3 // 5, stateful_step_count=60
)
test_random_histories_agree_with_the_slow_twin = Machine.TestCase


class Claims(RuleBasedStateMachine):
    """Records of requests that have not ended, and may be taken back. The twin gives unnamed blocks names."""

    @initialize(capacity=st.sampled_from([0, 1, 5, 12, 30, 1000]))
    def begin(self, capacity):
        self.tracker, self.slow = testing.ClaimTracker(capacity), SlowTracker(capacity)
        self.ids = {worker: self.tracker.add_worker() for worker in ("w0", "w1")}
        self.open, self.count, self.unnamed = [], 0, 0

    def named(self, prompt, unnamed):
        """The prompt's blocks and the unnamed ones behind them, under names that none had."""
        self.unnamed += unnamed
        return [*chain(prompt), *(i - self.unnamed for i in range(unnamed))]

    @rule(worker=st.sampled_from(["w0", "w1"]), prompt=PROMPTS, unnamed=UNNAMED)
    def record(self, worker, prompt, unnamed):
        self.tracker.record(self.ids[worker], chain(prompt), unnamed)
        self.slow.record(worker, self.named(prompt, unnamed))

    @rule(worker=st.sampled_from(["w0", "w1"]), prompt=PROMPTS, unnamed=UNNAMED)
    def record_open(self, worker, prompt, unnamed):
        claim = self.tracker.record_open(self.ids[worker], chain(prompt), unnamed)
        self.count += 1
        self.slow.record(worker, self.named(prompt, unnamed), claim=(self.count, claim))
        self.open.append((self.count, claim))

    @rule(worker=st.sampled_from(["w0", "w1"]), theirs=st.sampled_from(["w0", "w1"]))
    def adopt(self, worker, theirs):
        """What a saved tracker has, in its order of use; unnamed blocks become others."""
        self.tracker.adopt(self.ids[worker], self.tracker.reloaded(), self.ids[theirs])
        held = self.slow.used.get(theirs, {})
        for block in sorted(held, key=held.__getitem__):
            self.slow.record(worker, [block] if block > 0 else self.named([], 1))

    @rule(which=st.integers(0, 1000), end=st.sampled_from(["confirm", "withdraw"]))
    def end(self, which, end):
        if self.open:
            claim = self.open.pop(which % len(self.open))
            getattr(self.slow, end)(claim)
            getattr(self.tracker, end)(claim[1])

    @rule(worker=st.sampled_from(["w0", "w1"]), max_blocks=st.integers(0, 20))
    def evict(self, worker, max_blocks):
        if worker in self.slow.used:
            evicted = self.tracker.evict(self.ids[worker], max_blocks)
            assert evicted == self.slow.evict(worker, max_blocks)

    @rule(worker=st.sampled_from(["w0", "w1"]))
    def replace(self, worker):
        if worker in self.slow.used:
            self.tracker.remove_worker(self.ids[worker])
            self.ids[worker] = self.tracker.add_worker()
            self.slow.remove(worker)

    @rule()
    def reload(self):
        """mending row 47: what open requests use counts as used."""
        self.tracker = self.tracker.reloaded()
        for claim in self.open:
            self.slow.confirm(claim)
        self.open = []

    @rule(prompt=PROMPTS)
    def ask(self, prompt):
        expected = {self.ids[worker]: depth for worker, depth in self.slow.match(chain(prompt)).items()}
        assert self.tracker.match(chain(prompt)) == expected

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "slow"):
            return
        for worker, blocks in self.slow.used.items():
            assert self.tracker.block_count(self.ids[worker]) == len(blocks)
        names = [block for blocks in self.slow.used.values() for block in blocks]
        stats = self.tracker.stats()
        assert stats["pairs"] >= sum(block > 0 for block in names)  # those that left are swept later
        assert stats["unnamed"] == sum(block < 0 for block in names)
        assert self.tracker.check() == ""

    def teardown(self):
        if not hasattr(self, "slow"):
            return
        for number in self.ids.values():
            self.tracker.evict(number, 0)
        stats = self.tracker.stats()
        assert (stats["segments"], stats["unnamed"]) == (0, 0)


Claims.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 3 // 5, stateful_step_count=60
)
test_random_histories_of_claims_agree_with_the_slow_twin = Claims.TestCase


@given(st.lists(st.tuples(PROMPTS, st.booleans()), max_size=12), st.randoms(use_true_random=False))
def test_what_is_left_is_what_the_others_put_there(requests, random):
    """mending row 38: whatever order requests end in, failed ones leave and take nothing."""
    tracker, others = testing.ClaimTracker(1000), testing.ClaimTracker(1000)
    worker = tracker.add_worker()
    assert others.add_worker() == worker
    claims = [(tracker.record_open(worker, chain(prompt)), failed) for prompt, failed in requests]
    random.shuffle(claims)
    for claim, failed in claims:
        (tracker.withdraw if failed else tracker.confirm)(claim)
    for prompt, failed in requests:
        if not failed:
            others.record(worker, chain(prompt))
    for prompt, _ in requests:
        assert tracker.match(chain(prompt)) == others.match(chain(prompt))
    assert tracker.block_count(worker) == others.block_count(worker)
