"""One source's sequence: first contact, gaps, duplicates, restarts, reconnects, replays and their limits."""

import pytest

from vllm_router import _core_testing as testing

SECOND = 10**9
END = 2**64 - 1
MAX_LOST = 1 << 20


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


def test_late_join_with_the_start_of_history_lost_is_partial_and_needs_no_retry():
    source = Source()
    assert source.replay(5, 6) == [5, 6, "stop"]
    assert (source.trust, source.lost, source.replays_incomplete) == ("partial", 5, 1)
    assert source.next_tick == 2**63 - 1


def test_an_engine_that_never_published_is_exact():
    source = Source()
    assert source.replay() == ["stop"]
    assert (source.trust, source.next_number) == ("exact", 0)
    assert source.live(0) == [0]


@pytest.mark.parametrize(("first", "trust"), [(0, "exact"), (7, "partial")])
def test_without_a_replay_endpoint_the_first_live_batch_decides(first, trust):
    source = Source(replay=False)
    assert source.trust == "waiting"
    assert source.live(first) == [first]
    assert (source.trust, source.lost) == (trust, first)


def test_live_batches_before_the_connection_is_known_are_left_to_the_replay():
    source = Source(connect=False)
    assert source.live(3) == []
    assert (source.discarded, source.connected()) == (1, ["replay 0"])


# Gaps.


def test_a_gap_is_replayed_and_the_held_batch_is_a_duplicate():
    source = known(42)
    assert source.live(43) == ["replay 42"]
    assert source.replay(42, 43) == [42, 43, "stop"]
    assert (source.trust, source.duplicates, source.replays_ok) == ("exact", 1, 2)


def test_a_gap_without_a_replay_endpoint_is_lost():
    source = known(42, replay=False)
    assert source.live(43) == [43]
    assert (source.trust, source.lost) == ("partial", 1)


def test_a_gap_that_the_engine_no_longer_has_is_lost():
    source = known(42)
    source.live(60)
    assert source.replay(50, *range(51, 61)) == [*range(50, 61), "stop"]
    assert (source.trust, source.lost, source.next_tick) == ("partial", 8, 2**63 - 1)


def test_duplicates_in_a_replay_are_dropped():
    source = known(42)
    source.live(43)
    assert source.replay(40, 41, 42, 42) == [42, "stop", 43]
    assert (source.trust, source.duplicates) == ("exact", 3)


def test_a_hole_among_held_batches_starts_at_most_two_more_rounds():
    source = known(42)
    assert source.live(43, 45) == ["replay 42"]
    assert source.replay(42) == [42, "stop", 43, "replay 44"]
    assert source.replay() == ["stop", "replay 44"]
    assert source.replay() == ["stop", 45]
    assert (source.trust, source.lost, source.replays_incomplete, source.holding) == ("partial", 1, 1, False)
    source.wait(9)
    assert source.live(47) == [47]  # in the back-off


def test_gaps_that_open_while_others_are_filled_are_filled_too():
    source = known(42)
    assert source.live(43, 45) == ["replay 42"]
    for gap in (42, 44, 46, 48, 50):
        source.live(gap + 5)
        assert source.replay(gap) == [gap, "stop", gap + 1, f"replay {gap + 2}"]
    assert source.replay(52, 53, 54, 55) == [52, 53, 54, 55, "stop"]
    assert (source.trust, source.lost, source.replays_incomplete) == ("exact", 0, 0)


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


def test_a_gap_up_to_the_limit_is_a_gap():
    """Row 8"""
    source = known(1, replay=False)
    assert source.live(1 + MAX_LOST) == [1 + MAX_LOST]
    assert source.lost == MAX_LOST
    assert source.live(2 + 2 * MAX_LOST + 1) == ["sequence", 2 + 2 * MAX_LOST + 1]
    assert source.lost == MAX_LOST


def test_a_router_that_joins_late_counts_no_loss_beyond_the_limit():
    """Row 8: what was before it came is partly known at most."""
    source = Source(replay=False)
    assert source.live(10**12) == [10**12]
    assert (source.lost, source.trust) == (0, "partial")


def test_a_replay_from_a_forged_number_counts_no_loss():
    """Row 8"""
    source = Source()
    assert source.replay(10**18) == [10**18, "stop"]
    assert (source.lost, source.trust) == (0, "partial")


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


def test_a_restart_without_a_replay_endpoint_begins_anew():
    source = known(42, replay=False)
    assert source.live(3, engine="b") == ["sequence", 3]
    assert (source.trust, source.next_number) == ("partial", 4)
    assert source.live(0, engine="c") == ["sequence", 0]
    assert source.trust == "exact"


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


@pytest.mark.parametrize(
    ("outage", "number", "evidence", "expected", "trust"),
    [
        (1.0, 42, False, [42], "exact"),
        (1.0, 44, False, [44], "partial"),
        (2.5, 42, False, [42], "partial"),
        (2.5, 42, True, ["evidence", 42], "partial"),
        (1.0, 3, False, ["sequence", 3], "partial"),
        (2.5, 0, False, ["sequence", 0], "exact"),
    ],
)
def test_a_reconnect_without_a_replay_endpoint(outage, number, evidence, expected, trust):
    source = known(42, replay=False)
    source.disconnected()
    assert not evidence or source.evidence() == []
    source.wait(outage)
    assert source.connected() == []
    assert (source.live(number, engine="b"), source.trust) == (expected, trust)


def test_evidence_while_connected_requests_the_last_batch_again():
    source = known(42)
    assert source.evidence() == ["replay 41"]
    assert source.replay(41) == ["stop"]
    assert source.trust == "exact"


def test_a_connection_that_breaks_ends_the_replay_and_what_was_held():
    source = known(42)
    source.live(43)
    assert source.disconnected() == ["stop"]
    assert (source.held_batches, source.discarded, source.replays_abandoned) == (0, 1, 1)
    assert source.connected() == ["replay 41"]
    assert source.replay(41, 42, 43) == [42, 43, "stop"]
    assert source.trust == "exact"


def test_a_first_replay_that_broke_is_not_exact_before_it_is_repeated():
    source = Source()
    source.started()
    source.replayed(0, 1)
    source.disconnected()
    assert source.trust == "waiting"
    assert source.connected() == ["replay 1"]
    assert source.replay(1, 2) == [2, "stop"]
    assert source.trust == "exact"


def test_a_reconnect_while_nothing_is_known_is_first_contact_again():
    source = Source()
    for _ in range(3):
        source.started()
        source.until_tick()
    assert source.trust == "partial"
    source.disconnected()
    assert (source.connected(), source.trust) == (["replay 0"], "waiting")
    assert source.replay(0, 1) == [0, 1, "stop"]
    assert (source.trust, source.next_tick) == ("exact", 2**63 - 1)


# Deadlines and back-off.


def test_a_stall_resumes_from_the_next_batch_and_the_third_gives_up():
    source = known(42)
    source.live(45)
    assert source.next_tick == 2**63 - 1  # not started yet: it may wait for other replays
    source.started()
    source.replayed(42)
    assert source.tick(1.9) == []
    assert source.tick(0.1) == ["replay 43"]
    source.started()
    assert source.tick(2) == ["replay 43"]
    source.started()
    assert source.tick(2) == ["stop", 45]
    assert (source.trust, source.lost, source.replays_timed_out) == ("partial", 2, 1)


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


def test_a_later_replay_that_reaches_less_far_back_changes_nothing():
    source = Source()
    for _ in range(3):
        source.started()
        source.until_tick()
    assert source.live(7, 8) == [7, 8]
    assert source.until_tick() == ["replay 0"]
    source.started()
    assert source.replayed(8) == ["stop"]
    assert (source.trust, source.next_tick, source.live(9)) == ("partial", 2**63 - 1, [9])


def test_too_many_held_batches_abandon_the_replay():
    source = known(42, max_held_batches=2)
    assert source.live(43, 44, 46) == ["replay 42", "stop", 43, 44, 46]
    assert (source.trust, source.lost, source.replays_abandoned, source.held_bytes) == ("partial", 2, 1, 0)


def test_too_many_held_bytes_abandon_the_replay():
    source = known(42, max_held_bytes=4)
    assert source.live(43, 44, 46) == ["replay 42", "stop", 43, 44, 46]


def test_responses_without_a_running_replay_are_ignored():
    source = known(42)
    assert source.replayed(42) + source.end() == []
    source.live(43)
    assert source.replayed(42) + source.end() == []  # requested, and its socket not open


# What batches contained.


def test_a_clear_makes_the_source_exact_unless_batches_after_it_are_missing():
    source = Source(replay=False)
    source.live(7)
    source.cleared(7)
    assert source.trust == "exact"
    source.live(9)
    source.cleared(7)
    assert source.trust == "partial"
    source.cleared(9)
    assert source.trust == "exact"
    source.state.cleared(9, 5)  # of another incarnation


def test_a_malformed_batch_is_requested_once_more():
    source = known(42)
    source.live(42)
    assert source.malformed(42) == ["replay 42"]
    assert source.replay(42) == [42, "stop"]
    assert (source.trust, source.lost, source.state.counts()["applied"]) == ("exact", 0, 43)
    assert source.malformed(42) == []
    assert (source.trust, source.lost, source.state.counts()["applied"]) == ("partial", 1, 42)


def test_a_malformed_batch_without_a_replay_endpoint_is_lost():
    source = known(42, replay=False)
    source.live(42)
    assert (source.malformed(42), source.trust, source.lost) == ([], "partial", 1)
    assert source.live(43) == [43]


@pytest.mark.parametrize("cause", ["audit", "contradiction", "reset"])
def test_a_reset_begins_a_new_incarnation_with_a_replay_from_0(cause):
    source = known(42)
    source.live(43)
    assert source.reset(cause) == ["stop", cause, "replay 0"]
    assert (source.trust, source.replays_abandoned, source.incarnations) == ("waiting", 1, {cause: 1})
    assert source.replay(*range(44)) == [*range(44), "stop"]
    assert source.trust == "exact"


def test_a_reset_beyond_the_allowance_waits():
    source = known(3, replay=False)
    assert [source.reset() for _ in range(5)] == [["reset"]] * 4 + [[]]
    assert (source.trust, source.holding, source.live(3)) == ("waiting", True, [])
    assert source.until_tick() == ["reset", 3]
    assert not source.holding
