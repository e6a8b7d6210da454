"""cpp/proxy/continuation/rerun_attempts.h: attempts at other workers, by the rules of any retry."""

from tests.fakes.continued import CHAT, ON, Fleet, body, counts, events_of, got, stream, whole


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
