"""cpp/proxy/continuation/thread_continuation.h: what streams that may go on hold, and how they count."""

import json

from tests.fakes.continued import CHAT, ON, Fleet, body, counts, events_of, got, hang, stream
from tests.fakes.wire import eventually, request


def test_memory_is_held_while_a_stream_may_go_on(harness):
    fleet = Fleet(harness, 1, hang(4))
    router = harness.router(*fleet.workers, **ON)
    client = harness.client(router)
    sent = body(prompt="a" * 3000)
    client.send(request("POST", CHAT, body=sent))
    client.read_head()
    client.read_chunk()
    assert counts(router, "continue_memory_bytes") == {"": len(sent) + 4096}
    fleet.workers[0].stuck.open()
    client.close()
    eventually(lambda: counts(router, "continue_memory_bytes") == {}, "memory that nobody returned")


def test_a_stream_beyond_the_memory_is_cut_as_ever(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3))
    router = harness.router(*fleet.workers, continue_memory_mb=1, **ON)
    sent = body(prompt="a" * (1 << 20))
    assert got(harness.client(router), CHAT, sent) == (b"".join(events_of(CHAT)[:3]), False)
    router.must_rest()
    assert len(fleet.served) == 1
    assert counts(router, "streams_not_remembered_total") == {"": 1}
    assert counts(router, "streams_cut_total") == {}


def test_each_stream_counts_once_however_often_it_goes_on(harness):
    fleet = Fleet(harness, 3, stream(stop_after=3, then="error"), stream(stop_after=6))
    router = harness.router(*fleet.workers, retry_lost_requests=2, retry_budget=1, **ON)
    answer = harness.client(router).ask("POST", CHAT, body=body())
    assert json.loads(answer.body.split(b"\n\n")[1][6:])["id"] == "id-1"
    router.must_rest()
    assert len(fleet.served) == 3
    assert counts(router, "streams_continued_total") == {"server_error": 1}
