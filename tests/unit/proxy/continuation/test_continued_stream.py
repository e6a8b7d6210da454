"""cpp/proxy/continuation/continued_stream.h: which streams may go on, and what follows a second loss."""

import json
import re

import pytest

from tests.fakes.continued import (
    ABORT,
    CHAT,
    COMMENT,
    HEAD,
    ON,
    SERVER_ERROR,
    Fleet,
    abort,
    body,
    counts,
    events_of,
    got,
    hang,
    late,
    raw,
    stream,
    whole,
)
from tests.fakes.wire import EndedEarlyError, chunk, eventually, request
from vllm_router import _core


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


@pytest.mark.parametrize("most", [1, 3])
def test_an_option_says_how_often_a_stream_goes_on(harness, most):
    fleet = Fleet(harness, 5, *[stream(stop_after=at, then="error") for at in (2, 3, 4, 5)])
    router = harness.router(*fleet.workers, continue_max=most, retry_lost_requests=9, retry_budget=1, **ON)
    end = SERVER_ERROR + b"data: [DONE]\n\n"
    sent = b"".join(events_of(CHAT)[: most + 2])
    assert got(harness.client(router), CHAT, body()) == (sent + end, True)
    assert len(fleet.served) == most + 1


def begin(client):
    """The first events."""
    client.send(request("POST", CHAT, body=body()))
    assert client.read_head().status == 200
    return client.read_chunk()


def test_a_stream_whose_worker_aborts_and_stays_ends_as_ever(harness):
    fleet = Fleet(harness, 2, abort(3))
    # One check that succeeds clears the worker.
    router = harness.router(*fleet.workers, health_success_threshold=1, **ON)
    client = harness.client(router)
    data = begin(client)
    fleet.workers[fleet.served[0]].stuck.open()
    end = ABORT + b"data: [DONE]\n\n"
    assert data + client.read_to_last_chunk() == b"".join(events_of(CHAT)[:3]) + end
    router.must_rest()
    assert len(fleet.served) == 1
    assert counts(router, "streams_continued_total") == {}
    assert counts(router, "streams_cut_total") == {}


def test_what_a_worker_aborts_that_drains_goes_on_elsewhere(harness):
    fleet = Fleet(harness, 2, abort(3))
    router = harness.router(*fleet.workers, **ON)
    client = harness.client(router)
    data = begin(client)
    worker = fleet.workers[fleet.served[0]]
    router.core.drain_worker(worker.url)
    worker.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"aborted": 1}


def test_what_a_worker_aborts_that_ends_goes_on_elsewhere(harness):
    fleet = Fleet(harness, 2, abort(3))
    router = harness.router(*fleet.workers, health_failure_threshold=1, **ON)
    eventually(lambda: fleet.checked == {0, 1}, "no first health check")
    client = harness.client(router)
    data = begin(client)
    worker = fleet.workers[fleet.served[0]]
    worker.stop_listening()
    worker.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"aborted": 1}


def test_a_client_that_waits_for_the_rest_is_sent_comments(harness):
    fleet = Fleet(harness, 2, hang(4), late())
    for worker in fleet.workers:
        worker.stuck = worker.gate()
    router = harness.router(*fleet.workers, **{**ON, "continue_keepalive_secs": 0.05})
    client = harness.client(router)
    data = begin(client)
    first = fleet.served[0]
    second = fleet.workers[1 - first]
    # The drain's time is over at once, and the second worker says nothing yet.
    sent = json.dumps({"url": fleet.workers[first].url, "timeout_secs": 0}).encode()
    assert harness.client(router).ask("POST", "/admin/drain", body=sent).status == 202
    for _ in range(2):
        assert client.read_chunk() == COMMENT
    second.stuck.open()
    rest = client.read_to_last_chunk()
    assert data + rest.replace(COMMENT, b"") == whole(CHAT)
    router.must_rest()
    eventually(lambda: counts(router, "sse_keepalives_total").get("", 0) >= 2, "comments do not count")


def test_the_access_log_says_what_became_of_it(harness, written_to):
    fleet = Fleet(harness, 2, stream(stop_after=4))
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        router = harness.router(*fleet.workers, access_log=True, **ON)
        assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
        eventually(lambda: '"request_id"' in stdout(), "there is no line")
        (line,) = [json.loads(each) for each in stdout().splitlines() if '"request_id"' in each]
    finally:
        _core.configure_log()
    first, second = (fleet.workers[number].url for number in fleet.served)
    assert (line["worker"], line["first_worker"]) == (second, first)
    assert (line["continued"], line["continue_why"], line["continue_end"]) == (1, "lost", "whole")
    assert 0 <= line["continue_gap_ms"] <= line["total_ms"]
    assert line["failed"] == [{"worker": first, "status": 200, "error": "worker_closed"}]
    assert (line["end"], line["bytes_out"]) == ("done", len(whole(CHAT)))


def choice(index, text, end=None):
    said = {"index": index, "delta": {"content": text}, "finish_reason": end}
    head = {"id": "id", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**head, "choices": [said]}).encode() + b"\n\n"


def test_a_run_that_differs_behind_the_place_of_the_first_is_no_whole_stream(harness):
    first = [choice(0, "abc"), choice(0, "", "stop"), choice(1, "x")]
    fleet = Fleet(harness, 2, raw(*first, then="reset"))
    more = fleet.workers[0].gate()

    def second(_worker, connection, _message):
        connection.send(HEAD + chunk(choice(0, "abc")) + chunk(choice(1, "x")))
        connection.wait_until_read()
        more.wait()
        connection.send(chunk(choice(0, "d")) + chunk(choice(1, "y", "stop")) + b"0\r\n\r\n")

    fleet.turns.append(second)
    router = harness.router(*fleet.workers, **ON)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=body(n=2)))
    assert client.read_head().status == 200
    eventually(lambda: len(fleet.served) == 2, "it does not go on")
    more.open()
    with pytest.raises((EndedEarlyError, ConnectionResetError)):
        client.read_to_last_chunk()
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"diverged": 1}


@pytest.mark.parametrize(
    "ending", [(SERVER_ERROR,), (SERVER_ERROR, b"data: [DONE]\n\n")], ids=["alone", "done"]
)
def test_an_error_of_the_server_whose_response_does_not_end_is_followed(harness, ending):
    fleet = Fleet(harness, 2, raw(*events_of(CHAT)[:3], *ending, then="open"))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"server_error": 1}


def test_errors_of_the_server_are_no_losses(harness):
    fleet = Fleet(harness, 3, *[stream(stop_after=at, then="error") for at in (3, 5)])
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
    assert len(fleet.served) == 3


def test_the_last_event_of_a_second_run_needs_no_empty_line(harness):
    fleet = Fleet(harness, 2, stream(stop_after=4), raw(*events_of(CHAT)[:-1], b"data: [DONE]\n"))
    assert got(harness.client(harness.router(*fleet.workers, **ON)), CHAT, body()) == (whole(CHAT), True)


def test_what_uploads_need_is_free_while_a_stream_lasts(harness):
    fleet = Fleet(harness, 2, hang(3))
    router = harness.router(*fleet.workers, **ON)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=body(prompt="a" * 1_000_000)))
    assert client.read_head().status == 200
    assert counts(router, "body_memory_bytes") == {}
    assert counts(router, "continue_memory_bytes")[""] > 1_000_000
    client.close()
    router.must_rest()
    assert counts(router, "continue_memory_bytes") == {}


def test_the_first_token_is_of_the_worker_that_sent_it(harness):
    fleet = Fleet(harness, 2, stream(stop_after=4))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
    router.must_rest()
    text = router.server.metrics_text()
    counted = {
        url: int(count)
        for url, count in re.findall(r'ttft_seconds_count\{[^}]*worker="([^"]+)"[^}]*\} (\d+)', text)
    }
    first, second = (fleet.workers[number].url for number in fleet.served)
    assert (counted[first], counted.get(second, 0)) == (1, 0)
