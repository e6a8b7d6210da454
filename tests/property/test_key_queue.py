"""KeyQueue against its slow twin: keys and clients that come, leave and are told, in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.models.key_queue import KeyQueue as SlowQueue
from vllm_router import _core_testing as testing

KEYS = st.sampled_from("abcdefgh")
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "::1"])


class Machine(RuleBasedStateMachine):
    @initialize(places=st.integers(1, 12), share=st.integers(1, 5))
    def start(self, places, share):
        self.real = testing.KeyQueue(places, share)
        self.slow = SlowQueue(places, share)
        self.running = []  # keys and what the real queue calls their validations
        self.came = 0

    @rule(key=KEYS, address=ADDRESSES, refresh=st.booleans())
    def enter(self, key, address, refresh):
        self.came += 1
        entry = self.real.enter(self.came, address, key, refresh)
        assert entry == self.slow.enter(self.came, address, key, refresh)

    @rule()
    def begin(self):
        begun = self.real.begin()
        key = self.slow.begin()
        assert (None if begun is None else begun[0]) == key
        if begun is not None:
            self.running.append(begun)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data):
        key, number = data.draw(st.sampled_from(self.running))
        self.running.remove((key, number))
        assert self.real.end(number) == self.slow.end(key)

    @precondition(lambda self: self.came)
    @rule(data=st.data())
    def leave(self, data):
        number = data.draw(st.integers(1, self.came))
        abandoned = self.real.leave(number)
        assert (abandoned is not None) == self.slow.leave(number)
        if abandoned is not None:
            key = next(key for key, number in self.running if number == abandoned)
            self.running.remove((key, abandoned))
            assert self.real.end(abandoned) == []  # later, and in vain

    @invariant()
    def both_count_alike(self):
        if not hasattr(self, "real"):
            return
        assert self.real.waiting == self.slow.waiting
        assert self.real.queued == self.slow.queued
        for address in ("10.0.0.1", "10.0.0.2", "::1"):
            assert self.real.waiting_of(address) == self.slow.waiting_of(address)


TestKeyQueue = Machine.TestCase
