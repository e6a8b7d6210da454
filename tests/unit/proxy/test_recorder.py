"""What one lane writes into its log."""

import json

import pytest

from vllm_router import Router
from vllm_router._core import testing

LINE = {"wall_ms": 1_795_258_237_123, "client": "10.0.0.7", "method": "GET", "path": "/x", "status": 200}


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
    lanes.record_often(0, many, **long_line)
    lost = dropped(lanes)
    assert 0 < lost < many

    lanes.flush(0)
    written = lanes.written()
    assert written.count(b"\n") == many - lost
    assert room <= len(written) < room + 2000

    lanes.record(0, **long_line)
    assert lanes.has_lines(0)
    assert dropped(lanes) == lost
