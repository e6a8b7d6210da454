"""cpp/proxy/exchange/resumable_response.h: a stream that leaves its worker before that ends it."""

import json

import pytest

from tests.fakes.continued import (
    CHAT,
    ON,
    Fleet,
    body,
    counts,
    events_of,
    hang,
    late,
    pause,
    stream,
    whole,
)
from tests.fakes.wire import EndedEarlyError, eventually, request


def begin(client):
    """The first events, of a worker that says no more."""
    client.send(request("POST", CHAT, body=body()))
    assert client.read_head().status == 200
    return client.read_chunk()


def drain(harness, router, worker):
    sent = json.dumps({"url": worker.url, "timeout_secs": 0}).encode()
    assert harness.client(router).ask("POST", "/admin/drain", body=sent).status == 202


def test_a_drain_that_is_over_ends_the_workers_stream_alone(harness):
    fleet = Fleet(harness, 2, hang(4), stream())
    router = harness.router(*fleet.workers, **ON)
    client = harness.client(router)
    data = begin(client)
    drain(harness, router, fleet.workers[fleet.served[0]])
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"drained": 1}


HEALTH = {"health_check_interval_secs": 0.02, "health_failure_threshold": 2}


@pytest.mark.parametrize("grace", [0, 0.05, 3600], ids=["no grace", "its grace is over", "it is silent"])
def test_a_worker_that_is_found_dead_is_left(harness, grace):
    fleet = Fleet(harness, 2, hang(4), stream())
    router = harness.router(*fleet.workers, **{**ON, **HEALTH}, dead_worker_grace_secs=grace)
    client = harness.client(router)
    data = begin(client)
    fleet.workers[fleet.served[0]].stop_listening()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"dead": 1}


def test_a_worker_that_stops_listening_may_finish_its_streams(harness):
    fleet = Fleet(harness, 2, pause(4), stream(text="The sea was blue."))
    router = harness.router(*fleet.workers, **{**ON, **HEALTH}, dead_worker_grace_secs=3600)
    client = harness.client(router)
    data = begin(client)
    worker = fleet.workers[fleet.served[0]]
    worker.stop_listening()
    router.wait_until_unhealthy(worker)
    worker.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert len(fleet.served) == 1
    assert counts(router, "streams_cut_total") == {}


def test_a_worker_that_says_nothing_for_too_long_is_left(harness):
    fleet = Fleet(harness, 2, hang(4), stream())
    router = harness.router(*fleet.workers, stream_idle_timeout_secs=0.5, **ON)
    client = harness.client(router)
    assert begin(client) + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == {"idle": 1}


def test_a_client_that_leaves_meanwhile_costs_no_other_worker(harness):
    fleet = Fleet(harness, 3, stream(stop_after=3, then="error"), late())
    for worker in fleet.workers:
        worker.stuck = worker.gate()
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    client = harness.client(router)
    begin(client)
    eventually(lambda: len(fleet.served) == 2, "it does not go on")
    fleet.workers[fleet.served[1]].stuck.wait_for_someone()
    client.close()
    router.must_rest()
    assert len(fleet.served) == 2
    assert counts(router, "streams_cut_total") == {}


def test_without_another_worker_a_drain_cuts_as_ever(harness):
    fleet = Fleet(harness, 1, hang(4))
    router = harness.router(*fleet.workers, **ON)
    client = harness.client(router)
    data = begin(client)
    drain(harness, router, fleet.workers[0])
    with pytest.raises((EndedEarlyError, ConnectionResetError)):
        client.read_to_last_chunk()
    assert data == b"".join(events_of(CHAT)[:4])
