"""cpp/proxy/telemetry/log_lines.h: what a thread writes into the logs, and what has no room."""

import json
import os

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

LINE = {"wall_us": 1_795_258_237_123_456, "client": "10.0.0.7", "method": "GET", "path": "/x", "status": 200}


@pytest.fixture
def router():
    return Router(policy="round_robin")


@pytest.fixture(autouse=True)
def _log_as_before():
    yield
    testing.configure_log()


def test_lines_wait_until_they_are_flushed(router):
    testing.configure_log(json=True)
    lanes = testing.Lanes(router, access_log=True)
    assert not lanes.has_lines(0)
    lanes.record(0, **LINE)
    lanes.record(0, **LINE | {"path": "/y"})
    assert lanes.has_lines(0)
    assert lanes.written() == b""

    lanes.flush(0)
    assert not lanes.has_lines(0)
    assert [json.loads(line)["path"] for line in lanes.written().splitlines()] == ["/x", "/y"]


def test_the_form_is_that_of_the_log(router):
    lanes = testing.Lanes(router, access_log=True)
    for as_json in (True, False):
        testing.configure_log(json=as_json)
        lanes.record(0, **LINE)
    lanes.flush(0)
    first, second = lanes.written().decode().splitlines()
    assert json.loads(first)["client"] == "10.0.0.7"
    assert second.startswith("2026-11-21 10:50:37.123 10.0.0.7 ")


def test_nothing_is_written_when_nobody_wants_it(router):
    lanes = testing.Lanes(router, access_log=False)
    lanes.record(0, **LINE)
    assert not lanes.has_lines(0)
    lanes.flush(0)

    testing.configure_log(level=testing.LogLevel.WARNING)
    lanes = testing.Lanes(router, access_log=True)
    lanes.record(0, **LINE)
    assert not lanes.has_lines(0)


def dropped(lanes):
    lines = lanes.text().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("vllm_router_access_log_dropped_total ")]
    return int(value)


def test_lines_that_nobody_takes_are_dropped_and_counted(router):
    lanes = testing.Lanes(router, access_log=True)
    room = testing.limits()["kMaxAccessLogBytes"]
    long_line = LINE | {"path": "/" + "x" * 1000}
    many = room // 1000
    before = dropped(lanes)  # lost by the standard output of this process, which other tests had
    lanes.record_often(0, many, **long_line)
    lost = dropped(lanes) - before
    assert 0 < lost < many

    lanes.flush(0)
    written = lanes.written()
    assert written.count(b"\n") == many - lost
    assert room <= len(written) < room + 2000

    lanes.record(0, **long_line)
    assert lanes.has_lines(0)
    assert dropped(lanes) - before == lost


RECORD = {"route": "/v1/chat/completions", "status": 200, "prompt": (list(range(1000)), 16_000, "user:ann")}


def record_lines(lanes):
    found = [line.split() for line in lanes.text().splitlines() if "_record_log_lines_total{" in line]
    return {name.split('"')[1]: int(value) for name, value in found}


def test_records_with_a_prompt_become_lines_of_the_record_log(router, tmp_path):
    path = tmp_path / "traffic.jsonl"
    lanes = testing.Lanes(router, count=2, record_log=str(path))
    for lane in (0, 1):
        lanes.record(lane, **RECORD)
        lanes.record(lane, **LINE)  # has none
        assert lanes.has_lines(lane)
        lanes.flush(lane)
    assert lanes.wait_for_records(10_000)
    head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["vllm_router_record_log"] == 1
    assert [len(row["blocks"]) for row in rows] == [16_000, 16_000]
    assert rows[0] == rows[1]  # lanes make the same names
    assert record_lines(lanes) == {"written": 2, "lost": 0}


def test_without_a_record_log_prompts_are_not_wanted_and_not_counted(router):
    lanes = testing.Lanes(router)
    lanes.record(0, **RECORD)
    assert not lanes.has_lines(0)
    assert record_lines(lanes) == {}


def test_lines_that_the_record_log_does_not_take_are_lost_and_counted(router, tmp_path):
    # A pipe that nobody reads takes 64 KiB and then holds whoever writes.
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lanes = testing.Lanes(router, record_log=str(path))
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as pipe:
        room = testing.limits()["kMaxAccessLogBytes"]
        sent = 0
        while not lanes.has_lines(0):
            lanes.record_often(0, 100, **RECORD)
            sent += 100
            lanes.flush(0)
        lanes.record_often(0, room // 16_000, **RECORD)
        sent += room // 16_000
        lost = record_lines(lanes)["lost"]
        assert lost > 0

        os.set_blocking(pipe.fileno(), True)
        received = 0
        while received < 1 + sent - lost:  # the head as well
            lanes.flush(0)
            received += pipe.read1(1 << 20).count(b"\n")
        assert lanes.wait_for_records(10_000)
        assert record_lines(lanes) == {"written": sent - lost, "lost": lost}
