"""Streams whose worker is lost go on at another one: what clients get, and what metrics say."""

import json

import pytest

from tests.fakes.continued import (
    CHAT,
    COMPLETIONS,
    ON,
    TEXT,
    Fleet,
    body,
    counts,
    die,
    events_of,
    got,
    stream,
    whole,
)
from tests.fakes.wire import eventually, request


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_lost_stream_is_that_of_an_undisturbed_run_at_every_cut(harness, path):
    fleet = Fleet(harness, 3)
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    last = len(events_of(path)) - 1
    for cut in range(1, last + 1):
        fleet.turns = [stream(stop_after=cut), stream()]
        # Each is another request: one that loses two workers is suspected.
        sent = body(prompt=str(cut))
        assert got(harness.client(router), path, sent) == (whole(path), True), cut
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"lost": last}
    assert counts(router, "streams_cut_total") == {}
    assert counts(router, "continue_memory_bytes") == {}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("letters", [1, 4, 30])
def test_events_of_other_sizes_make_the_same_text(harness, path, letters):
    fleet = Fleet(harness, 2, stream(stop_after=4), stream(letters=letters, run="2"))
    data, ended = got(harness.client(harness.router(*fleet.workers, **ON)), path, body())
    assert ended
    parsed = [json.loads(event[6:]) for event in data.decode().split("\n\n") if event.startswith("data: {")]
    assert {(event["id"], event["created"]) for event in parsed} == {("id-1", 1)}
    choices = [choice for event in parsed for choice in event["choices"]]
    said = [choice["delta"].get("content") if path == CHAT else choice["text"] for choice in choices]
    assert "".join(filter(None, said)) == TEXT
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert [event["usage"]["completion_tokens"] for event in parsed if event.get("usage")] == [9]
    assert data.endswith(b"data: [DONE]\n\n")
    assert data.count(b"assistant") == (path == CHAT)


def test_half_an_event_is_not_the_clients(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3, then="half"), stream())
    client = harness.client(harness.router(*fleet.workers, **ON))
    assert got(client, CHAT, body()) == (whole(CHAT), True)
    client.must_be_open()


def test_an_error_of_the_server_is_not_seen(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3, then="error"), stream())
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"server_error": 1}


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.7}, {"temperature": None}], ids=["warm", "engine's default"]
)
def test_a_sampled_stream_is_cut_as_ever(harness, sampling):
    fleet = Fleet(harness, 2, stream(stop_after=3))
    router = harness.router(*fleet.workers, **ON)
    cut = b"".join(events_of(CHAT)[:3])
    assert got(harness.client(router), CHAT, body(**sampling)) == (cut, False)
    assert len(fleet.served) == 1
    assert counts(router, "streams_cut_total") == {}


def test_a_seed_makes_a_sampled_stream_one_that_repeats(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body(temperature=1, seed=4)) == (whole(CHAT), True)


def test_off_it_is_cut(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3, then="half"))
    router = harness.router(*fleet.workers, **{**ON, "continue_streams": "off"})
    cut = b"".join(events_of(CHAT)[:3]) + events_of(CHAT)[3][:9]
    assert got(harness.client(router), CHAT, body()) == (cut, False)
    assert len(fleet.served) == 1
    assert counts(router, "streams_cut_total") == {}


@pytest.mark.parametrize("value", ["never", "Never"])
def test_a_client_may_forbid_it(harness, value):
    fleet = Fleet(harness, 2, stream(stop_after=3))
    router = harness.router(*fleet.workers, **ON)
    field = ("X-VLLM-Router-Continue", value)
    assert got(harness.client(router), CHAT, body(), field) == (b"".join(events_of(CHAT)[:3]), False)
    assert len(fleet.served) == 1


def test_a_client_cannot_ask_for_it(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3))
    router = harness.router(*fleet.workers, **{**ON, "continue_streams": "off"})
    field = ("x-vllm-router-continue", "verified")
    assert got(harness.client(router), CHAT, body(), field) == (b"".join(events_of(CHAT)[:3]), False)
    assert len(fleet.served) == 1


def test_another_text_never_follows(harness):
    fleet = Fleet(harness, 2, stream(stop_after=4), stream(text="The sea was blue, once, and it will be."))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:4]), False)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"diverged": 1}
    assert len(fleet.served) == 2


def test_a_shorter_text_is_no_continuation(harness):
    fleet = Fleet(harness, 2, stream(stop_after=4), stream(text=TEXT[:9]))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:4]), False)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"diverged": 1}


def test_without_another_worker_it_is_cut(harness):
    fleet = Fleet(harness, 1, stream(stop_after=4, then="half"))
    router = harness.router(*fleet.workers, **ON)
    cut = b"".join(events_of(CHAT)[:4]) + events_of(CHAT)[4][:9]
    assert got(harness.client(router), CHAT, body()) == (cut, False)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"no_worker": 1}


def test_a_request_that_ends_workers_costs_two(harness):
    fleet = Fleet(harness, 5, *[die(4)] * 5)
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:4]), False)
    router.must_rest()
    assert len(fleet.served) == len(set(fleet.served)) == 2
    assert sum(counts(router, "streams_cut_total").values()) == 1
    eventually(lambda: "vllm_router_quarantines_total 1\n" in router.server.metrics_text(), "it is not known")
    assert harness.client(router).ask("POST", CHAT, body=body()).status == 502
    assert len(fleet.served) == 2


def test_without_a_budget_for_retries_it_is_cut(harness):
    fleet = Fleet(harness, 2, stream(stop_after=4))
    router = harness.router(*fleet.workers, **{**ON, "disable_retries": True})
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:4]), False)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"retries": 1}


def test_many_streams_of_one_worker_go_on(harness):
    known = set()

    def lose_once(worker, connection, message):
        turn = stream() if message.body in known else stream(stop_after=5)
        known.add(message.body)
        turn(worker, connection, message)

    fleet = Fleet(harness, 4, *[lose_once] * 32)
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    clients = [harness.client(router) for _ in range(16)]
    for number, client in enumerate(clients):
        client.send(request("POST", CHAT, body=body(prompt=str(number))))
    for client in clients:
        response = client.read_response()
        assert response.body == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"lost": 16}
