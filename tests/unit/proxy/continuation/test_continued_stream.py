"""cpp/proxy/continuation/continued_stream.h: which streams may go on, and what follows a second loss."""

import pytest

from tests.fakes.continued import CHAT, ON, SERVER_ERROR, Fleet, body, counts, events_of, got, stream, whole


@pytest.fixture(autouse=True)
def continuing(monkeypatch):
    monkeypatch.setenv("VLLM_ROUTER_CONTINUE_STREAMS", "verified")


def test_a_worker_that_is_lost_while_it_catches_up_is_followed_by_another(harness):
    fleet = Fleet(harness, 3, stream(stop_after=5, then="error"), stream(stop_after=2))
    router = harness.router(*fleet.workers, retry_lost_requests=2, retry_budget=1, **ON)
    assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
    router.must_rest()
    assert sorted(fleet.served) == [0, 1, 2]


def test_a_stream_goes_on_twice_at_most(harness):
    fleet = Fleet(harness, 5, *[stream(stop_after=at, then="error") for at in (2, 4, 6, 8)])
    router = harness.router(*fleet.workers, retry_lost_requests=9, retry_budget=1, **ON)
    end = SERVER_ERROR + b"data: [DONE]\n\n"
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:6]) + end, True)
    router.must_rest()
    assert len(fleet.served) == 3
    assert counts(router, "streams_cut_total") == {"max": 1}


def test_a_stream_whose_worker_aborts_ends_as_ever(harness):
    abort = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'

    def aborted(_worker, connection, message):
        events = [*events_of(message.target)[:3], abort]
        data = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)
        connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            + data
            + b"0\r\n\r\n"
        )

    fleet = Fleet(harness, 2, aborted)
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:3]) + abort, True)
    assert len(fleet.served) == 1
