"""cpp/proxy/continuation/second_run.h: what a second run may do that is no continuation of the first."""

import pytest

from tests.fakes.continued import (
    CHAT,
    DRAIN,
    HEAD,
    SERVER_ERROR,
    TEXT,
    Fleet,
    begin,
    counts,
    drain,
    events_of,
    handovers,
    pause,
    raw,
    stream,
    whole,
)
from tests.fakes.wire import chunk, eventually

ONCE = {**DRAIN, "continue_max": 1}


def bad_framing(_worker, connection, message):
    connection.send(HEAD + chunk(events_of(message.target)[0]) + b"zz\r\n")


@pytest.mark.parametrize(
    ("second", "end"),
    [
        (stream(stop_after=2), "failed"),
        (bad_framing, "failed"),
        (raw(*events_of(CHAT)[:2], SERVER_ERROR), "failed"),
        (stream(text=TEXT[:9]), "diverged"),
        (raw(b"data: no event of a completion\n\n"), "diverged"),
    ],
    ids=["lost", "bad framing", "error of the server", "shorter", "unreadable"],
)
def test_the_first_goes_on_after_a_second_run_that(harness, second, end):
    fleet = Fleet(harness, 2, pause(5), second)
    router = harness.router(*fleet.workers, **ONCE)
    client, data = begin(harness, router, 5)
    drain(harness, router, fleet.workers[fleet.served[0]])
    eventually(lambda: handovers(router) == {("drain", end): 1}, "it did not end so")
    fleet.workers[fleet.served[0]].stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {}
    assert counts(router, "continue_memory_bytes") == {}


def test_a_second_run_that_is_larger_than_memory_is_dropped(harness):
    """Its response is kept until it has caught up: 700 KB, beside a request of 500 KB, of 1 MiB."""
    comments = b": " + b"x" * 700_000 + b"\n\n"
    fleet = Fleet(harness, 2, pause(5), raw(comments, *events_of(CHAT), then="open"))
    router = harness.router(*fleet.workers, **ONCE, continue_memory_mb=1)
    client, data = begin(harness, router, 5, prompt="a" * 500_000)
    drain(harness, router, fleet.workers[fleet.served[0]])
    eventually(lambda: handovers(router) == {("drain", "failed"): 1}, "it was not dropped")
    fleet.workers[fleet.served[0]].stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "continue_memory_bytes") == {}
