"""cpp/events/trust_log.h: one line for each state and minute."""

import pytest

from vllm_router import _core_testing as testing

SECOND = 1_000_000_000
START = 1_000 * SECOND


def url(number):
    return f"http://gpu-{number}:8000"


class Log:
    def __init__(self, capfd):
        self.log = testing.TrustLog()
        self.capfd = capfd

    def changed(self, number, state, second):
        self.log.changed(url(number), state, "some are missing", START + second * SECOND)

    def watch(self, second):
        self.log.watch(START + second * SECOND)

    def lines(self):
        """(level, text) of each since the last call."""
        found = []
        for line in self.capfd.readouterr().err.splitlines():
            level, _, text = line.split(" ", 2)[2].partition(" kv events: ")
            found.append((level, text))
        return found


@pytest.fixture
def log(capfd):
    return Log(capfd)


def test_the_first_worker_has_a_line_with_the_reason(log):
    log.changed(0, "partial", 0)
    log.changed(0, "exact", 1)
    assert log.lines() == [
        ("WARNING", f"{url(0)} is partial: some are missing"),
        ("INFO", f"{url(0)} is exact: some are missing"),
    ]


def test_workers_that_follow_within_a_minute_share_the_next_line(log):
    for number in range(8):
        log.changed(number, "partial", number)
    log.watch(59)
    assert log.lines() == [("WARNING", f"{url(0)} is partial: some are missing")]
    log.watch(60)
    named = ", ".join(url(number) for number in range(1, 5))
    assert log.lines() == [("WARNING", f"7 more workers are partial: {named} and 3 others")]
    log.watch(200)
    assert log.lines() == []


def test_a_worker_that_changes_all_the_time_is_told_by_its_last_state(log):
    log.changed(0, "silent", 0)
    log.changed(0, "exact", 0)
    for second in range(1, 51):
        log.changed(1, "silent" if second % 2 else "exact", second)
    assert len(log.lines()) == 2
    log.watch(60)
    assert log.lines() == [("INFO", f"1 more worker is exact: {url(1)}")]


def test_a_state_is_quiet_for_a_minute_after_each_line(log):
    log.changed(0, "partial", 0)
    log.changed(1, "partial", 1)
    log.watch(60)
    log.changed(2, "partial", 61)
    log.watch(119)
    assert len(log.lines()) == 2
    log.watch(120)
    assert log.lines() == [("WARNING", f"1 more worker is partial: {url(2)}")]


def test_a_worker_that_left_is_not_told(log):
    log.changed(0, "partial", 0)
    log.changed(1, "partial", 1)
    log.log.forget(url(1))
    log.watch(60)
    assert len(log.lines()) == 1
