"""Streams that are handed over while their worker still has them, since it drains or stalls."""

import re
import threading

import pytest

from tests.fakes.continued import (
    CHAT,
    COMMENT,
    DRAIN,
    STALL,
    TEXT,
    Fleet,
    begin,
    body,
    counts,
    drain,
    drain_ends,
    events_of,
    handovers,
    pause,
    posted_to,
    raw,
    read_events,
    step_by_step,
    stream,
    whole,
)
from tests.fakes.wire import eventually, request, response

OTHER = "The sea was blue, once, and it will be."


def starts(after):
    """Sends so many events; its connection stands until the router ends it."""
    return raw(*events_of(CHAT)[:after], then="open")


def refuse(_worker, connection, _message):
    connection.send(response(503, b"no"))


def blamed(router):
    """Outcomes that workers' circuit breakers hold against them."""
    text = router.server.metrics_text()
    return [line for line in text.splitlines() if re.match(r".*cb_outcomes.*failure.* [1-9]", line)]


def test_a_client_that_takes_nothing_gets_one_second_run(harness):
    """The relay of its first run waits for it, while the drain asks for a hand-over every 50 ms.

    Another stream, whose second run is refused and begins again after a second, shows that it asked often.
    """
    long = {"text": "x" * 3_600_000, "letters": 60_000}
    refused = threading.Event()

    def run_again(worker, connection, message):
        if b'"long"' in message.body:
            stream(run="2", **long)(worker, connection, message)
        elif refused.is_set():
            stream(run="2")(worker, connection, message)
        else:
            refused.set()
            refuse(worker, connection, message)

    fleet = Fleet(harness, 2, raw(*events_of(CHAT, **long)[:61], then="open"), starts(5), *[run_again] * 3)
    first, second = fleet.workers
    router = harness.router(first, **DRAIN)
    slow = harness.client(router, receive_buffer=4096)
    slow.send(request("POST", CHAT, body=body(prompt="long")))
    assert slow.read_head().status == 200
    client, data = begin(harness, router, 5)
    router.core.add_worker(second.url)
    drain(harness, router, first)
    assert data + client.read_to_last_chunk() == whole(CHAT)
    assert slow.read_to_last_chunk() == whole(CHAT, **long)
    assert handovers(router)[("drain", "moved")] == 2
    drain_ends(harness, router, first, "drained")
    assert len(fleet.served) == 5


def test_a_drain_hands_its_streams_over_and_ends_early(harness):
    fleet = Fleet(harness, 2, *[starts(5)] * 6, *[stream(run="2")] * 6)
    first, second = fleet.workers
    router = harness.router(first, **DRAIN)
    clients = [begin(harness, router, 5, prompt=str(number)) for number in range(6)]
    router.core.add_worker(second.url)
    drain(harness, router, first)
    for client, data in clients:
        assert data + client.read_to_last_chunk() == whole(CHAT)
        client.must_be_open()
    drain_ends(harness, router, first, "drained")
    for connection in posted_to(first):
        connection.wait_ended()
    router.must_rest()
    assert fleet.served == [0] * 6 + [1] * 6
    assert handovers(router) == {("drain", "moved"): 6}
    assert counts(router, "streams_continued_total") == {"drained": 6}
    assert counts(router, "streams_cut_total") == {}
    assert counts(router, "continue_memory_bytes") == {}
    assert blamed(router) == []
    assert "vllm_router_quarantines_total 0\n" in router.server.metrics_text()


def test_a_second_run_that_differs_changes_nothing(harness):
    fleet = Fleet(harness, 2, pause(5), stream(text=OTHER, run="2"))
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 5)
    first = fleet.workers[fleet.served[0]]
    drain(harness, router, first)
    eventually(lambda: handovers(router) == {("drain", "diverged"): 1}, "it was not compared")
    first.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    drain_ends(harness, router, first, "drained")
    router.must_rest()
    assert counts(router, "streams_continued_total") == {}
    assert counts(router, "streams_cut_total") == {}
    assert len(fleet.served) == 2


@pytest.mark.parametrize("is_equal", [True, False], ids=["equal", "other"])
def test_what_the_first_says_during_the_hand_over_is_the_clients_once(harness, is_equal):
    """It goes on until the second run has caught up with the beginning, and waits from then on."""
    fleet = Fleet(harness, 2)
    first_gates = [fleet.workers[0].gate() for _ in range(3)]
    second_gates = [fleet.workers[1].gate() for _ in range(2)]
    fleet.turns = [
        step_by_step(3, 5, 7, gates=first_gates),
        step_by_step(1, 4, gates=second_gates, run="2", text=TEXT if is_equal else TEXT[:24] + OTHER),
    ]
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 3)
    drain(harness, router, fleet.workers[fleet.served[0]])
    second_gates[0].wait_for_someone()  # its first event has been read, and compared with three
    first_gates[0].open()
    data = read_events(client, 5, data)
    second_gates[0].open()
    second_gates[1].wait_for_someone()  # it has four; the first stands still
    first_gates[1].open()
    first_gates[2].wait_for_someone()
    second_gates[1].open()
    if not is_equal:
        eventually(lambda: handovers(router) == {("drain", "diverged"): 1}, "it was not compared")
        first_gates[2].open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_continued_total") == ({"drained": 1} if is_equal else {})
    for gate in first_gates:
        gate.open()


def test_a_first_stream_that_ends_meanwhile_is_whole(harness):
    fleet = Fleet(harness, 2, pause(5), starts(0))
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 5)
    first, second = fleet.workers[fleet.served[0]], fleet.workers[1 - fleet.served[0]]
    drain(harness, router, first)
    eventually(lambda: len(fleet.served) == 2, "there is no second run")
    first.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    posted_to(second)[0].wait_ended()
    router.must_rest()
    assert handovers(router) == {("drain", "first_ended"): 1}
    assert counts(router, "streams_continued_total") == {}


def test_the_end_of_a_drain_leaves_the_stream_to_the_second_run(harness):
    fleet = Fleet(harness, 3)
    gate = fleet.workers[0].gate()
    fleet.turns = [starts(5), step_by_step(2, gates=[gate], run="2")]
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 5)
    first = fleet.workers[fleet.served[0]]
    drain(harness, router, first)
    gate.wait_for_someone()
    drain(harness, router, first, secs=0)
    drain_ends(harness, router, first, "cut")
    posted_to(first)[0].wait_ended()
    gate.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert len(fleet.served) == 2
    assert counts(router, "streams_continued_total") == {"drained": 1}


def test_a_loss_of_the_first_leaves_the_stream_to_the_second_run(harness):
    fleet = Fleet(harness, 3)
    lost, gate = fleet.workers[0].gate(), fleet.workers[0].gate()

    def lose(worker, connection, message):
        starts(5)(worker, connection, message)
        lost.wait()
        connection.reset()

    fleet.turns = [lose, step_by_step(2, gates=[gate], run="2")]
    router = harness.router(*fleet.workers, **{**DRAIN, "continue_keepalive_secs": 0.05})
    client, data = begin(harness, router, 5)
    drain(harness, router, fleet.workers[fleet.served[0]])
    gate.wait_for_someone()
    lost.open()
    assert client.read_chunk() == COMMENT  # it waits from now on
    gate.open()
    assert data + client.read_to_last_chunk().replace(COMMENT, b"") == whole(CHAT)
    router.must_rest()
    assert len(fleet.served) == 2
    assert counts(router, "streams_continued_total") == {"lost": 1}


def test_a_client_that_leaves_ends_both(harness):
    fleet = Fleet(harness, 2, starts(5), starts(0))
    router = harness.router(*fleet.workers, **DRAIN)
    client, _ = begin(harness, router, 5)
    drain(harness, router, fleet.workers[fleet.served[0]])
    eventually(lambda: len(fleet.served) == 2, "there is no second run")
    eventually(lambda: router.loads() == [1, 1], "each worker has its load")
    client.close()
    for worker in fleet.workers:
        posted_to(worker)[0].wait_ended()
    router.must_rest()
    assert handovers(router) == {("drain", "client_gone"): 1}


def test_without_a_worker_that_takes_it_a_stream_stays(harness):
    fleet = Fleet(harness, 2, pause(5), refuse)
    router = harness.router(*fleet.workers, **DRAIN)
    client, data = begin(harness, router, 5)
    first = fleet.workers[fleet.served[0]]
    drain(harness, router, first)
    eventually(lambda: handovers(router) == {("drain", "no_worker"): 1}, "it was not sought")
    first.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {}


def test_a_worker_gets_few_second_runs_at_once(harness):
    fleet = Fleet(harness, 2)
    first, second = fleet.workers
    gates = [second.gate() for _ in range(6)]
    lock = threading.Lock()
    waiting, most = set(), []

    def wait_for(number):
        def turn(worker, connection, message):
            with lock:
                waiting.add(number)
                most.append(len(waiting))
            gates[number].wait()
            with lock:
                waiting.remove(number)
            stream()(worker, connection, message)

        return turn

    fleet.turns = [*[starts(5)] * 6, *[wait_for(number) for number in range(6)]]
    router = harness.router(first, **DRAIN)
    clients = [begin(harness, router, 5, prompt=str(number)) for number in range(6)]
    router.core.add_worker(second.url)
    drain(harness, router, first)
    for number in range(4):
        gates[number].wait_for_someone()
    for number in range(6):
        gates[number].open()
        if number + 4 < 6:
            gates[number + 4].wait_for_someone()
    for client, data in clients:
        assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert max(most) == 4


def test_off_a_drain_waits_for_its_streams(harness):
    fleet = Fleet(harness, 2, pause(5))
    router = harness.router(*fleet.workers, **{**DRAIN, "continue_drain_secs": 0})
    client, data = begin(harness, router, 5)
    first = fleet.workers[fleet.served[0]]
    drain(harness, router, first)
    first.stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    drain_ends(harness, router, first, "drained")
    assert len(fleet.served) == 1
    assert handovers(router) == {}


# ---- stalls


def test_a_stalled_stream_goes_on_with_the_second_run(harness):
    fleet = Fleet(harness, 2, starts(5), stream(run="2"))
    router = harness.router(*fleet.workers, **STALL)
    client, data = begin(harness, router, 5)
    assert data + client.read_to_last_chunk() == whole(CHAT)
    posted_to(fleet.workers[fleet.served[0]])[0].wait_ended()
    router.must_rest()
    assert handovers(router) == {("stall", "moved"): 1}
    assert counts(router, "streams_continued_total") == {"stalled": 1}
    assert blamed(router) == []


def test_a_stalled_stream_that_wakes_up_first_goes_on_itself(harness):
    fleet = Fleet(harness, 2, pause(5), starts(0))
    router = harness.router(*fleet.workers, **STALL)
    client, data = begin(harness, router, 5)
    eventually(lambda: len(fleet.served) == 2, "there is no second run")
    fleet.workers[fleet.served[0]].stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    posted_to(fleet.workers[fleet.served[1]])[0].wait_ended()
    router.must_rest()
    assert handovers(router) == {("stall", "first_spoke"): 1}
    assert counts(router, "streams_continued_total") == {}


def test_a_stalled_stream_whose_second_run_differs_is_not_cut(harness):
    fleet = Fleet(harness, 2, pause(5), stream(text=OTHER, run="2"))
    router = harness.router(*fleet.workers, **STALL)
    client, data = begin(harness, router, 5)
    eventually(lambda: handovers(router) == {("stall", "diverged"): 1}, "it was not compared")
    fleet.workers[fleet.served[0]].stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
    assert counts(router, "streams_cut_total") == {}
