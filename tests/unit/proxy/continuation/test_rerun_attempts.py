"""cpp/proxy/continuation/rerun_attempts.h: attempts at other workers, by the rules of any retry."""

import json
import re

from tests.fakes.continued import CHAT, ON, Fleet, body, counts, events_of, got, stream, whole
from tests.fakes.wire import eventually
from vllm_router import _core


def refuse(_worker, connection, _message):
    connection.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")


def test_a_worker_that_refuses_is_followed_by_another(harness):
    fleet = Fleet(harness, 3, stream(stop_after=5), refuse)
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    assert got(harness.client(router), CHAT, body()) == (whole(CHAT), True)
    router.must_rest()
    assert sorted(fleet.served) == [0, 1, 2]


def test_the_attempts_before_the_stream_count(harness):
    fleet = Fleet(harness, 4, refuse, stream(stop_after=5))
    router = harness.router(*fleet.workers, retry_budget=1, retry_max_retries=2, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:5]), False)
    router.must_rest()
    assert len(fleet.served) == 2
    assert counts(router, "streams_cut_total") == {"retries": 1}


def test_a_worker_that_had_the_request_does_not_get_it_again(harness):
    fleet = Fleet(harness, 2, stream(stop_after=5), refuse)
    router = harness.router(*fleet.workers, retry_budget=1, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:5]), False)
    router.must_rest()
    assert sorted(fleet.served) == [0, 1]
    assert counts(router, "streams_cut_total") == {"no_worker": 1}


def reject(_worker, connection, _message):
    connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")


def test_who_rejects_the_second_run_has_not_broken_the_first(harness, written_to):
    fleet = Fleet(harness, 2, stream(stop_after=5), reject)
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        router = harness.router(*fleet.workers, access_log=True, retry_budget=1, **ON)
        assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:5]), False)
        eventually(lambda: '"request_id"' in stdout(), "there is no line")
        (line,) = [json.loads(each) for each in stdout().splitlines() if '"request_id"' in each]
    finally:
        _core.configure_log()
    lost, rejecter = (fleet.workers[number].url for number in fleet.served)
    assert (line["worker"], line["error"]) == (lost, "worker_closed")
    assert [(each["worker"], each["status"]) for each in line["failed"]] == [(rejecter, 400)]
    failures = [
        text
        for text in router.server.metrics_text().splitlines()
        if re.match(r".*cb_outcomes.*failure.* [1-9]", text)
    ]
    assert len(failures) == 1
    assert lost in failures[0]
