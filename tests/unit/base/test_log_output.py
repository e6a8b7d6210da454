"""cpp/base/log_output.h: what is told of losses, and writes that a full pipe does not hold up.

Files and streams are proved through the log, in test_log.py.
"""

import os
import random

import pytest

from tests.fakes.full_pipe import FullPipe
from vllm_router import _core_testing as testing

MINUTE = 60_000_000_000


def test_a_loss_is_told_at_once_then_once_a_minute_and_when_it_is_over():
    report = testing.LossReport()
    assert report.add(0, 0) is None
    assert report.add(2, 5) == (2, False)
    assert report.add(1, 6) is None
    assert report.add(4, MINUTE + 4) is None
    assert report.add(1, MINUTE + 5) == (6, False)
    assert report.add(3, MINUTE + 6) is None
    assert report.add(0, MINUTE + 7) == (3, True)
    assert report.add(0, 9 * MINUTE) is None


def test_every_lost_line_is_told_once(rng: random.Random):
    """Row 31: and never twice within a minute, but for the first of a row and the end."""
    report, now, lost, told = testing.LossReport(), 0, 0, 0
    for _ in range(2000):
        now += rng.randrange(MINUTE)
        count = rng.choice([0, 0, 1, 7])
        lost += count
        news = report.add(count, now)
        told += 0 if news is None else news[0]
        assert told <= lost
    news = report.add(0, now + 1)
    assert lost == told + (0 if news is None else news[0])


def test_all_is_written_to_a_pipe_that_other_code_made_non_blocking():
    with FullPipe() as pipe:
        os.set_blocking(pipe.write_end, False)
        pipe.drain_in_background()
        assert testing.write_all(pipe.write_end, "x" * 100_000) == 100_000
        assert pipe.text() == "x" * 100_000


@pytest.mark.parametrize("is_read", [False, True])
def test_a_brief_write_ends_though_a_pipe_is_not_read(is_read):
    with FullPipe() as pipe:
        if is_read:
            pipe.drain_in_background()
        testing.write_briefly(pipe.write_end, "last line\n", 50 if not is_read else 10_000)
        if is_read:
            assert pipe.text() == "last line\n"


def test_a_brief_write_to_what_is_closed_returns():
    read, write = os.pipe()
    os.close(read)
    testing.write_briefly(write, "last line\n", 10_000)
    os.close(write)
    testing.write_briefly(write, "last line\n", 10_000)
