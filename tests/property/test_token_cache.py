"""routing/token_cache.h against its slow twin, over random histories."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.token_cache import TokenCache as SlowCache
from vllm_router import _core_testing as testing

MODELS = st.sampled_from(["", "m"])
CALLS = st.sampled_from(["prompt", "chat", "messages"])
# Conversations that share beginnings, and plain texts of the same letters.
TEXTS = st.lists(st.sampled_from(["\x1eu", "\x1e", "a", "b"]), max_size=6).map("".join)
ENTRY = testing.TOKEN_CACHE_ENTRY_BYTES


class Machine(RuleBasedStateMachine):
    @initialize(capacity=st.sampled_from([0, ENTRY, ENTRY + 8, 3 * ENTRY + 20, 100 * ENTRY]))
    def begin(self, capacity):
        self.cache = testing.TokenCache(capacity)
        self.slow = SlowCache(capacity, ENTRY, testing.MAX_NAMED_ITEMS)

    @rule(model=MODELS, call=CALLS, text=TEXTS, ids=st.lists(st.integers(0, 2**32 - 1), max_size=4))
    def store(self, model, call, text, ids):
        self.cache.store(model, call, text, ids)
        self.slow.store(model, call, text, ids)

    @rule(model=MODELS, call=CALLS, text=TEXTS)
    def find(self, model, call, text):
        assert self.cache.find(model, call, text) == self.slow.find(model, call, text)

    @invariant()
    def both_hold_the_same(self):
        stats = self.cache.stats()
        assert stats["entries"] == len(self.slow.entries)
        assert stats["bytes"] == self.slow.bytes <= self.slow.capacity_bytes
        assert stats["evicted"] == self.slow.evicted


Machine.TestCase.settings = settings(stateful_step_count=40)
test_the_cache_does_what_its_twin_does = Machine.TestCase
