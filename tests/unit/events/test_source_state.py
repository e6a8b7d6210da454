"""One source's sequence: first contact, gaps, duplicates, restarts, reconnects, replays and their limits."""

import pytest

from vllm_router import _core_testing as testing

SECOND = 10**9
END = 2**64 - 1


def payload(number, engine="a"):
    return f"{engine}{number}".encode()


class Source:
    """The machine with a clock in seconds; what it applied, by number, since its last incarnation."""

    def __init__(self, replay=True, connect=True, **limits):
        self.state = testing.SourceState(replay, **limits)
        self.now = 100.0
        self.applied = []
        if connect:
            self.connected()

    def __getattr__(self, name):  # a counter, or what the machine tells
        counts = self.state.counts()
        return counts[name] if name in counts else getattr(self.state, name)()

    def _ran(self, actions):
        short = []
        for kind, *rest in actions:
            if kind == "apply":
                self.applied.append(rest[0])
                short.append(rest[0])
            elif kind == "new_incarnation":
                self.applied = []
                short.append(rest[0])
            else:
                short.append(f"replay {rest[0]}" if rest else "stop")
        return short

    def _at(self):
        return round(self.now * SECOND)

    def connected(self):
        return self._ran(self.state.connected(self._at()))

    def disconnected(self):
        return self._ran(self.state.disconnected(self._at()))

    def live(self, *numbers, engine="a"):
        actions = []
        for number in numbers:
            actions += self._ran(self.state.batch(number, payload(number, engine), self._at()))
        return actions

    def started(self):
        self.state.replay_started(self._at())

    def replayed(self, *numbers, engine="a"):
        actions = []
        for number in numbers:
            actions += self._ran(self.state.replay_batch(number, payload(number, engine), self._at()))
        return actions

    def end(self):
        return self._ran(self.state.replay_end(self._at()))

    def replay(self, *numbers, engine="a"):
        self.started()
        return self.replayed(*numbers, engine=engine) + self.end()

    def tick(self, seconds):
        self.now += seconds
        return self._ran(self.state.tick(self._at()))

    def until_tick(self):
        """To the next deadline."""
        self.now = max(self.now, self.state.next_tick() / SECOND)
        return self._ran(self.state.tick(self._at()))

    def evidence(self):
        return self._ran(self.state.evidence(self._at()))

    def reset(self, cause="reset"):
        return self._ran(self.state.reset(cause, self._at()))

    def malformed(self, number):
        return self._ran(self.state.malformed(number, self.state.incarnation(), self._at()))

    def cleared(self, number):
        self.state.cleared(number, self.state.incarnation())

    def wait(self, seconds):
        self.now += seconds


def known(count=42, replay=True, **limits):
    """It applied 0..count-1 and is exact."""
    source = Source(replay, **limits)
    if replay:
        source.replay(*range(count))
    else:
        source.live(*range(count))
    source.wait(20)
    assert (source.trust, source.next_number, source.holding) == ("exact", count, False)
    return source


# First contact.


def test_late_join_with_history_kept_is_exact():
    source = Source(connect=False)
    assert source.connected() == ["replay 0"]
    assert (source.live(8), source.trust, source.held_bytes) == ([], "waiting", 2)
    assert source.replay(*range(9)) == [*range(9), "stop"]
    assert (source.trust, source.next_number, source.duplicates, source.lost) == ("exact", 9, 1, 0)
    assert source.live(9) == [9]


# Gaps.


def test_a_gap_is_replayed_and_the_held_batch_is_a_duplicate():
    source = known(42)
    assert source.live(43) == ["replay 42"]
    assert source.replay(42, 43) == [42, 43, "stop"]
    assert (source.trust, source.duplicates, source.replays_ok) == ("exact", 1, 2)


def test_a_huge_jump_is_a_restart_and_no_loss():
    """Row 8: one forged number made 9.2e18 batches lost for good, since a counter cannot be taken back."""
    source = known(1, replay=False)
    assert source.live(10**18) == ["sequence", 10**18]
    assert source.lost == 0
    assert source.live(END - 1) == ["sequence", END - 1]
    assert (source.live(END), source.next_number, source.discarded) == ([], END, 1)
    assert source.live(2) == ["sequence", 2]  # the engine goes on where it was
    assert source.live(3) == [3]
    assert (source.lost, source.trust) == (2, "partial")  # 0 and 1 of what seems to be another engine


# Duplicates and restarts.


def test_a_recent_batch_once_more_is_a_duplicate_and_another_one_a_restart():
    source = known(100)
    assert (source.live(36), source.duplicates) == ([], 1)  # the last of 64
    assert source.live(36, engine="b") == ["sequence", "replay 0"]
    assert (source.trust, source.live(37, engine="b")) == ("waiting", [])
    assert source.replay(*range(38), engine="b") == [*range(38), "stop"]
    assert (source.trust, source.incarnation, source.incarnations) == ("exact", 1, {"sequence": 1})


def test_a_batch_older_than_the_last_64_is_a_duplicate_only_after_a_replay():
    source = known(100)
    source.live(101)
    source.replay(100, 101)
    source.wait(9.9)
    assert (source.live(35), source.duplicates) == ([], 2)
    source.wait(0.1)
    assert source.live(35) == ["sequence", "replay 0"]


@pytest.mark.parametrize("replay", [True, False])
def test_restarts_are_limited(replay):
    source = known(2, replay)
    restarts = 0
    for step in range(3000):  # 30 s
        source.wait(0.01)
        actions = source.tick(0) + source.live(step % 2, engine=str(step))
        if source.holding:
            source.started()
            actions += source.end()
        restarts += actions.count("sequence")
    assert 20 < restarts < 40
    assert source.replays_started < 100


# Reconnects.


@pytest.mark.parametrize(
    ("numbers", "engine", "evidence", "expected", "trust"),
    [
        ([41, 42], "a", False, [42, "stop"], "exact"),
        ([41, 42], "a", True, [42, "stop"], "exact"),
        ([41], "b", False, ["stop", "digest", "replay 0"], "waiting"),
        ([], "b", False, ["stop", "end_mark", "replay 0"], "waiting"),
        ([3], "b", False, ["stop", "sequence", "replay 0"], "waiting"),
        ([42], "b", True, ["stop", "evidence", "replay 0"], "waiting"),
        ([42], "b", False, [42, "stop"], "partial"),
        ([50], "b", False, [50, "stop"], "partial"),
    ],
)
def test_after_a_reconnect_the_last_batch_is_requested_again(numbers, engine, evidence, expected, trust):
    source = known(42)
    source.disconnected()
    assert not evidence or source.evidence() == []
    assert source.connected() == ["replay 41"]
    source.started()
    actions = source.replayed(*numbers, engine=engine)
    if "replay 0" not in actions:
        actions += source.end()
    assert (actions, source.trust) == (expected, trust)


# Deadlines and back-off.


def test_a_replay_ends_after_30_seconds_though_it_progresses():
    source = known(42)
    source.live(1000)
    source.started()
    for number in range(42, 57):
        assert source.replayed(number) == [number]
        source.wait(1.9)
    source.replayed(57)
    assert source.until_tick() == ["stop", 1000]
    assert source.trust == "partial"


def test_failed_replays_are_repeated_ever_more_rarely_until_one_succeeds():
    source = Source()
    delays = []
    for _ in range(7):
        for _ in range(3):
            source.started()
            source.until_tick()
        assert source.trust == "partial"
        before = source.now
        assert source.until_tick() == ["replay 0"]
        delays.append(source.now - before)
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    source.live(3)
    assert source.replay(0, 1, 2, 3) == ["reset", 0, 1, 2, 3, "stop"]
    assert (source.trust, source.next_tick) == ("exact", 2**63 - 1)


# What batches contained.


def test_a_reset_beyond_the_allowance_waits():
    source = known(3, replay=False)
    assert [source.reset() for _ in range(5)] == [["reset"]] * 4 + [[]]
    assert (source.trust, source.holding, source.live(3)) == ("waiting", True, [])
    assert source.until_tick() == ["reset", 3]
    assert not source.holding
