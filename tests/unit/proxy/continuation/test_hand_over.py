"""cpp/proxy/continuation/hand_over.h: which streams are handed over, and what the log says.

What comes of it is in tests/proxy/test_handovers.py.
"""

import json

from tests.fakes.continued import (
    CHAT,
    DRAIN,
    Fleet,
    begin,
    counts,
    drain,
    drain_ends,
    events_of,
    handovers,
    pause,
    raw,
    stream,
    whole,
)
from tests.fakes.wire import eventually
from vllm_router import _core


def test_a_stream_that_was_handed_over_is_handed_over_again(harness):
    fleet = Fleet(
        harness,
        3,
        raw(*events_of(CHAT)[:3], then="open"),
        raw(*events_of(CHAT, run="2")[:5], then="open"),
        stream(run="3"),
    )
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 3)
    first = fleet.workers[fleet.served[0]]
    drain(harness, router, first)
    drain_ends(harness, router, first, "drained")
    drain(harness, router, fleet.workers[fleet.served[1]])
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert sorted(fleet.served) == [0, 1, 2]
    assert handovers(router) == {("drain", "moved"): 2}
    assert counts(router, "streams_continued_total") == {"drained": 1}  # a stream, not its moves


def test_after_the_loss_of_a_worker_there_is_no_hand_over(harness):
    """Two workers would have the request, and it may be what ended the first. Other streams move."""
    starts = raw(*events_of(CHAT)[:5], then="open")
    fleet = Fleet(harness, 3, raw(*events_of(CHAT)[:3], then="reset"), pause(5), *[starts] * 6)
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 5)
    others = [begin(harness, router, 5, prompt=str(number)) for number in range(6)]  # at each worker
    second = fleet.workers[fleet.served[1]]
    moved = {("drain", "moved"): fleet.served[2:].count(fleet.served[1])}
    drain(harness, router, second)
    eventually(lambda: handovers(router) == moved, "nothing moves")
    second.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    for other, _ in others:
        other.close()
    router.must_rest()
    assert moved["drain", "moved"] > 0
    assert handovers(router) == moved


def test_the_access_log_names_the_worker_that_it_left(harness, written_to):
    fleet = Fleet(harness, 2, raw(*events_of(CHAT)[:5], then="open"), stream(run="2"))
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        router = harness.router(*fleet.workers, access_log=True, **DRAIN)
        client, data = begin(harness, router, 5)
        drain(harness, router, fleet.workers[fleet.served[0]])
        assert data + client.read_to_last_chunk() == whole(CHAT)
        eventually(lambda: '"continued"' in stdout(), "there is no line")
        (line,) = [json.loads(each) for each in stdout().splitlines() if '"continued"' in each]
    finally:
        _core.configure_log()
    first, second = (fleet.workers[number].url for number in fleet.served)
    assert (line["worker"], line["first_worker"]) == (second, first)
    assert (line["continued"], line["continue_why"], line["continue_end"]) == (1, "drained", "whole")
    assert line["failed"] == [{"worker": first, "status": 200, "error": "worker_drained"}]
    assert (line["end"], line["bytes_out"]) == ("done", len(whole(CHAT)))
