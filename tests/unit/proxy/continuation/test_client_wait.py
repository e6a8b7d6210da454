"""cpp/proxy/continuation/client_wait.h: comments and the length of a wait.

Comments during the search for another worker are in test_continued_stream.py.
"""

from tests.fakes.continued import (
    CHAT,
    COMMENT,
    DRAIN,
    Fleet,
    begin,
    counts,
    drain,
    read_events,
    step_by_step,
    whole,
)
from tests.fakes.wire import eventually


def test_a_client_is_sent_comments_while_its_stream_stands_still(harness):
    fleet = Fleet(harness, 2)
    first_gates = [fleet.workers[0].gate() for _ in range(2)]
    second_gates = [fleet.workers[1].gate() for _ in range(2)]
    fleet.turns = [
        step_by_step(3, 5, gates=first_gates, then="open"),
        step_by_step(1, 4, gates=second_gates, run="2"),
    ]
    router = harness.router(*fleet.workers, **{**DRAIN, "continue_keepalive_secs": 0.05})
    client, data = begin(harness, router, 3)
    drain(harness, router, fleet.workers[fleet.served[0]])
    second_gates[0].wait_for_someone()
    first_gates[0].open()
    data = read_events(client, 5, data)  # and no comment, as the first goes on
    second_gates[0].open()
    for _ in range(2):
        assert client.read_chunk() == COMMENT
    second_gates[1].open()
    assert data + client.read_to_last_chunk().replace(COMMENT, b"") == whole(CHAT)
    first_gates[1].open()
    router.must_rest()
    eventually(lambda: counts(router, "sse_keepalives_total").get("", 0) >= 2, "comments do not count")
