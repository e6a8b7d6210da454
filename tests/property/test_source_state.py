"""SourceState against its slow twin in any and in all short orders of events; and behind a model engine."""

import itertools
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import source_state as twin
from vllm_router import _core_testing as testing

SECOND = 10**9
END = 2**64 - 1


class Both:
    """The machine and its twin get the same events; what they do must be the same."""

    def __init__(self, has_replay, **limits):
        self.ours = testing.SourceState(has_replay, **limits)
        self.slow = twin.SourceState(has_replay, **limits)
        self.now = 50.0
        self.passed = 0  # numbers of earlier incarnations that were applied or lost
        self.jumped = 0  # numbers of jumps that are too large to be losses
        self.next = 0
        self.told = set()  # what batches contained, each once

    def run(self, event, *args):
        slow = self.slow
        now = round(self.now * SECOND)
        if event == "started":
            self.ours.replay_started(now)
            slow.on_replay_started(self.now)
            ours = []
        elif event == "cleared":
            self.ours.cleared(*args, self.ours.incarnation())
            slow.on_cleared(*args)
            ours = []
        elif event == "malformed":
            ours = self.ours.malformed(*args, self.ours.incarnation(), now)
            slow.on_malformed(*args, self.now)
        else:
            ours = getattr(self.ours, event)(*args, now)
            getattr(slow, f"on_{event}")(*args, self.now)
        assert ours == slow.take(), event
        self.check(ours)

    def check(self, actions):
        ours, slow = self.ours, self.slow
        assert ours.trust() == slow.trust()
        assert ours.next_number() == slow.next
        assert ours.holding() == slow.busy()
        assert ours.held_batches() == len(slow.queue)
        assert ours.held_bytes() == sum(len(payload) for _, payload in slow.queue)
        assert ours.incarnation() == slow.incarnations
        assert ours.gaps() == slow.gaps
        tick = slow.next_tick()
        if abs(tick) != twin.NEVER:
            assert ours.next_tick() == round(tick * SECOND)
        else:
            assert ours.next_tick() == (2**63 - 1 if tick > 0 else -(2**63))
        counts = ours.counts()
        ended = sum(counts[f"replays_{how}"] for how in ("ok", "incomplete", "timed_out", "abandoned"))
        assert counts["replays_started"] - ended in (0, 1)
        # Every number that was passed was applied, lost, or part of a jump.
        for action in actions:
            if action[0] == "new_incarnation":
                self.passed, self.next = self.passed + self.next, 0
            elif action[0] == "apply":
                assert action[1] >= self.next
                gap = action[1] - self.next
                self.jumped += gap if gap > twin.MAX_LOST else 0
                self.next = action[1] + 1
        self.next = ours.next_number()  # a malformed batch that is requested again goes back
        assert counts["lost"] == min(self.passed + self.next - self.jumped - counts["applied"], END)


NUMBERS = st.one_of(
    st.integers(-2, 2).map(lambda away: ("near", away)),
    st.sampled_from(
        [("at", 0), ("at", 1), ("at", 5), ("at", 1 << 20), ("at", 10**18), ("at", END - 1), ("at", END)]
    ),
)
PAYLOADS = st.sampled_from([b"a", b"b", b"cc"])
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["batch", "batch", "replay_batch", "replay_batch"]), NUMBERS, PAYLOADS),
    st.tuples(st.sampled_from(["replay_end", "connected", "disconnected", "started", "started", "evidence"])),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0, 31.0])),
    st.tuples(st.just("due")),
    st.tuples(st.sampled_from(["cleared", "malformed"])),
    st.tuples(st.just("reset"), st.sampled_from(["audit", "reset"])),
)


def play(both, events):
    for event, *args in events:
        if event == "wait":
            both.now += args[0]
            both.run("tick")
        elif event == "due":
            due = both.slow.next_tick()
            both.now = max(both.now, due) if due < twin.NEVER else both.now
            both.run("tick")
        elif event in ("cleared", "malformed"):
            last = both.slow.applied[-1:]
            told = (event, both.slow.incarnations, len(both.slow.applied))
            if last and last[0][0] == both.slow.next - 1 and told not in both.told:
                both.told.add(told)
                both.run(event, both.slow.next - 1)
        elif event in ("batch", "replay_batch"):
            (kind, number), payload = args
            number = number if kind == "at" else max(0, min(both.slow.next + number, END))
            if event == "replay_batch" and number == END:
                both.run("replay_end")
            else:
                both.run(event, number, payload)
        else:
            both.run(event, *args)


@settings(max_examples=600)
@given(st.booleans(), st.lists(EVENTS, max_size=60))
def test_any_order_of_events_does_what_the_twin_does(has_replay, events):
    both = Both(has_replay, max_held_batches=4, max_held_bytes=6)
    play(both, [("connected",), *events])


NEXT, AHEAD = ("batch", ("near", 0), b"a"), ("batch", ("near", 1), b"a")
BEFORE, OTHER = ("batch", ("near", -1), b"a"), ("batch", ("near", -1), b"b")
REPLAY, REPLAY_BEFORE = ("replay_batch", ("near", 0), b"a"), ("replay_batch", ("near", -1), b"a")
STARTED, REPLAY_END, DUE = ("started",), ("replay_end",), ("due",)
CONNECTED, DISCONNECTED = ("connected",), ("disconnected",)
# Each step is one or more events.
ORDERS = [
    (True, 4, [[e] for e in (NEXT, AHEAD, BEFORE, OTHER, REPLAY, REPLAY_BEFORE, STARTED, REPLAY_END, DUE)]),
    (
        True,
        6,
        [[NEXT], [AHEAD], [OTHER], [REPLAY], [REPLAY_END, STARTED], [DISCONNECTED, CONNECTED, STARTED]],
    ),
    (False, 6, [[NEXT], [AHEAD], [OTHER], [DISCONNECTED], [CONNECTED], [DUE]]),
]


@pytest.mark.parametrize(("has_replay", "length", "steps"), ORDERS)
def test_all_short_orders_of_events_do_what_the_twin_does(has_replay, length, steps):
    for chosen in itertools.product(steps, repeat=length):
        both = Both(has_replay, max_held_batches=2)
        play(both, [CONNECTED, STARTED, *itertools.chain.from_iterable(chosen)])


class Engine:
    """It numbers its batches from 0, buffers the last ones, loses live ones, restarts; what it sends passes
    through a state machine, whose actions are carried out here."""

    def __init__(self, has_replay, buffered):
        self.state = testing.SourceState(has_replay, max_held_batches=6)
        self.buffered = buffered
        self.now = 50.0
        self.lives = 0  # how often it started
        self.published = []  # since it started
        self.connected = False
        self.live = deque()
        self.answers_replays = True
        self.replay = None  # what the open socket has yet to receive
        self.applied = []  # of the incarnation

    def _carry_out(self, actions):
        for kind, *rest in actions:
            if kind == "apply":
                self.applied.append(tuple(rest))
            elif kind == "new_incarnation":
                self.applied = []
            elif kind == "stop_replay":
                self.replay = None
            else:
                buffer = [*self.published[-self.buffered :], (END, b"")]
                ready = self.answers_replays and self.connected
                self.replay = deque((n, p) for n, p in buffer if n >= rest[0]) if ready else deque()
                self.state.replay_started(self._at())
        if self.state.trust() == "exact":
            assert [n for n, _ in self.applied] == list(range(len(self.applied)))
            assert len({payload.split(b":")[0] for _, payload in self.applied}) <= 1

    def _at(self):
        return round(self.now * SECOND)

    def wait(self, seconds):
        self.now += seconds
        self._carry_out(self.state.tick(self._at()))

    def publish(self, arrives=True):
        self.published.append((len(self.published), b"%d:%d" % (self.lives, len(self.published))))
        if arrives and self.connected:
            self.live.append(self.published[-1])

    def receive(self):
        if self.live:
            self._carry_out(self.state.batch(*self.live.popleft(), self._at()))

    def receive_replay(self):
        if self.replay:
            self._carry_out(self.state.replay_batch(*self.replay.popleft(), self._at()))

    def connect(self):
        if not self.connected:
            self.connected = True
            self._carry_out(self.state.connected(self._at()))

    def cut(self):
        if self.connected:
            self.connected = False
            self.live.clear()
            self.replay = self.replay and deque()
            self._carry_out(self.state.disconnected(self._at()))

    def restart(self, published, returns):
        was_connected = self.connected
        self.cut()
        self.lives += 1
        self.published = []
        for _ in range(published):
            self.publish()
        self.wait(3)
        if was_connected and returns:
            self.connect()

    def catch_up(self):
        while self.live or self.replay:
            self.receive()
            self.receive_replay()

    def settle(self):
        """All that is on its way arrives, until the machine waits for nothing."""
        while True:
            self.catch_up()
            due = self.state.next_tick()
            if due == 2**63 - 1:
                return
            self.wait(max(0, due / SECOND - self.now))


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from([True, True, False])),
    st.tuples(st.sampled_from(["connect", "catch_up"])),
    st.tuples(st.sampled_from(["receive", "receive", "receive_replay", "receive_replay", "connect", "cut"])),
    st.tuples(st.just("restart"), st.integers(0, 8), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 2.0, 11.0])),
    st.tuples(st.just("mute"), st.booleans()),
)


@settings(max_examples=400)
@given(st.booleans(), st.integers(1, 12), st.integers(0, 8), st.lists(STEPS, min_size=10, max_size=60))
def test_after_the_last_fault_it_is_exact_or_partial_with_a_reason(has_replay, buffered, before, steps):
    engine = Engine(has_replay, buffered)
    for _ in range(before):
        engine.publish()
    engine.connect()
    engine.catch_up()
    for step, *args in steps:
        if step == "mute":
            engine.answers_replays = args[0]
        else:
            getattr(engine, step)(*args)
    engine.answers_replays = True
    engine.connect()
    engine.settle()
    began = engine.now
    engine.publish()  # shows what was lost before
    engine.settle()
    assert engine.now - began < 330  # a replay's deadlines and the longest back-off
    assert not engine.state.holding()
    if engine.state.trust() == "exact":
        assert engine.applied == engine.published
    else:
        assert engine.state.trust() == "partial"
        assert not has_replay or len(engine.published) > buffered
    if engine.applied:
        assert engine.applied[-1] == engine.published[-1]
