"""cpp/index/coarse_index.h against its slow twin, over random histories."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.coarse_index import CoarseIndex as SlowIndex
from tests.models.coarse_index import strides_of
from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

WORKERS = st.sampled_from([3, 7, 4000])
PROMPTS = st.lists(st.sampled_from([0, 0, 0, 0, 1]), max_size=20)


def chain(prompt):
    return hash_blocks(prompt, 1).tolist()


class Machine(RuleBasedStateMachine):
    @initialize(stride=st.sampled_from([1, 2, 3, 8]), capacity=st.sampled_from([1, 5, 12, 1000]))
    def begin(self, stride, capacity):
        self.stride = stride
        self.coarse, self.slow = testing.CoarseIndex(stride, capacity), SlowIndex(stride, capacity)
        self.open, self.count = [], 0

    def there(self, worker):
        return worker in self.slow.tracker.used

    @rule(worker=WORKERS)
    def come_or_go(self, worker):
        if self.there(worker):
            self.coarse.remove(worker)
            self.slow.tracker.remove(worker)
        else:
            self.coarse.add(worker)
            self.slow.add(worker)

    @rule(worker=WORKERS, prompt=PROMPTS)
    def record(self, worker, prompt):
        strides = strides_of(chain(prompt), self.stride)
        assert testing.CoarseIndex.strides_of(chain(prompt), self.stride) == strides
        self.coarse.record(worker, strides)  # no effect for one that is not there
        if self.there(worker) and strides:
            self.slow.record(worker, strides)

    @rule(worker=WORKERS, prompt=PROMPTS)
    def record_open(self, worker, prompt):
        strides = strides_of(chain(prompt), self.stride)
        claim = self.coarse.record_open(worker, strides)
        if not self.there(worker) or not strides:
            assert claim == 0
            return
        self.count += 1
        self.slow.record(worker, strides, self.count)
        if claim == 0:  # all of it was there for good
            self.slow.tracker.confirm(self.count)
        else:
            self.open.append((claim, self.count))

    @rule(data=st.data(), reached=st.booleans())
    def settle(self, data, reached):
        if not self.open:
            return
        claim, number = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if reached:
            self.coarse.confirm(claim)
            self.slow.tracker.confirm(number)
        else:
            self.coarse.withdraw(claim)
            self.slow.tracker.withdraw(number)

    @rule(worker=WORKERS)
    def forget(self, worker):
        self.coarse.forget(worker)
        if self.there(worker):
            self.slow.tracker.evict(worker, 0)

    @rule(worker=WORKERS, blocks=st.integers(0, 40))
    def set_capacity(self, worker, blocks):
        self.coarse.set_capacity(worker, blocks)
        if self.there(worker):
            self.slow.set_capacity(worker, blocks)

    @rule(prompt=PROMPTS, own=st.dictionaries(WORKERS, st.integers(0, 20)))
    def refine(self, prompt, own):
        known = {worker: min(held, len(prompt)) for worker, held in own.items() if self.there(worker)}
        expected = self.slow.refine(chain(prompt), known)
        refined = self.coarse.refine(chain(prompt), known)
        assert {worker: held for worker, held in refined.items() if held} == {
            worker: held for worker, held in expected.items() if held
        }
        assert all(0 <= held <= len(prompt) for held in refined.values())

    @invariant()
    def counts_agree(self):
        if hasattr(self, "slow"):
            assert self.coarse.strides == sum(map(len, self.slow.tracker.used.values()))


Machine.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 3 // 5, stateful_step_count=50
)
test_random_histories_agree_with_the_slow_twin = Machine.TestCase
