"""cpp/base/line_writer.h: the log of all lanes, whole lines in order, and nobody waits for it."""

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

ROOM = testing.limits()["kMaxAccessLogBytes"]


@pytest.fixture
def lanes():
    return testing.Lanes(Router(policy="round_robin"), count=2, access_log=True)


def paths(written):
    return [line.split('"')[1].removeprefix("GET ") for line in written.decode().splitlines()]


def record(lanes, lane, path, times=1):
    lanes.record_often(lane, times, method="GET", path=path, status=200)


def dropped(lanes):
    lines = lanes.text().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("vllm_router_access_log_dropped_total ")]
    return int(value)


def test_each_lanes_lines_stay_whole_and_in_order(lanes):
    for number in range(200):
        record(lanes, number % 2, f"/{number % 2}/{number}")
        if number % 7 == 0:
            lanes.flush(number % 2)
    lanes.flush(0)
    lanes.flush(1)
    written = paths(lanes.written())
    for lane in (0, 1):
        assert [path for path in written if path.startswith(f"/{lane}/")] == [
            f"/{lane}/{number}" for number in range(200) if number % 2 == lane
        ]


def test_a_log_that_is_stuck_holds_up_no_lane(lanes):
    # sink  waiting (4 MiB)  lane 0 (4 MiB)
    # [a]   [b b b .. b]     [c c .. c]   d d d are dropped
    lanes.set_stuck(True)
    record(lanes, 0, "/a")
    lanes.flush(0)

    long_path = "x" * 1000
    line_bytes = len(testing.access_line("text", "", method="GET", path="/b" + long_path, status=200))
    many = ROOM // line_bytes + 2
    for letter in "bc":
        while True:  # the log's thread may or may not have taken what came before
            record(lanes, 0, f"/{letter}{long_path}", many - 2)
            lanes.flush(0)
            if lanes.has_lines(0):
                break
    before = dropped(lanes)
    record(lanes, 0, f"/d{long_path}", many)
    assert lanes.has_lines(0)
    assert dropped(lanes) > before

    others = 0
    while not lanes.has_lines(1):  # what is left of the room is less than lane 0 wanted
        record(lanes, 1, "/other-lane")
        others += 1
        lanes.flush(1)  # refused in the end; the line waits, and is not lost

    lanes.set_stuck(False)
    for lane in (0, 1):
        lanes.written()  # makes room
        lanes.flush(lane)
    written = paths(lanes.written())
    assert written[0] == "/a"
    assert written.count("/other-lane") == others
    assert not lanes.has_lines(0)
    assert not lanes.has_lines(1)


def test_what_was_taken_is_written_before_the_log_ends(capfd):
    # The server's own log ends with the server; see tests/proxy/test_metrics.py.
    lanes = testing.Lanes(Router(policy="round_robin"), access_log=True)
    record(lanes, 0, "/last")
    lanes.flush(0)
    assert paths(lanes.written()) == ["/last"]
    del lanes
    assert capfd.readouterr().out == ""
