"""cpp/proxy/continuation/place_wait.h: lost streams wait for a place before requests that came later."""

from tests.fakes.continued import (
    CHAT,
    COMMENT,
    HEAD,
    ON,
    Fleet,
    begin,
    body,
    counts,
    die,
    events_of,
    pause,
    stream,
    whole,
)
from tests.fakes.wire import EndedEarlyError, chunk, eventually, request

OTHER = "Another answer. " * 4
FULL = {
    **ON,
    "retry_budget": 1,
    "routing": {"max_worker_requests": 1},
    "queue_size": 10,
    "queue_timeout_secs": 60,
}


def wait_for(router, name, count):
    eventually(lambda: counts(router, name) == ({"": count} if count else {}), f"{name} is not {count}")


def lose(harness, *turns, **options):
    """A router, what keeps its one worker that is left full, and a stream that waits for that one."""
    fleet = Fleet(harness, 2, pause(3), die(5), *turns)
    router = harness.router(*fleet.workers, **{**FULL, **options})
    occupant = begin(harness, router, 3, prompt="occupant")
    lost = begin(harness, router, 5)
    return fleet, router, occupant, lost


def end_occupant(fleet, occupant):
    client, data = occupant
    fleet.workers[fleet.served[0]].stuck.open()
    assert data + client.read_to_last_chunk() == whole(CHAT)


def test_a_lost_stream_gets_the_next_place_before_a_request_that_came_later(harness):
    fleet, router, occupant, (client, data) = lose(harness, stream(), stream(text=OTHER))
    wait_for(router, "continue_waiting", 1)
    wait_for(router, "queue_depth", 1)  # once the dead worker is no place
    later = harness.client(router)
    later.send(request("POST", CHAT, body=body(prompt="later")))
    wait_for(router, "queue_depth", 2)
    end_occupant(fleet, occupant)
    assert data + client.read_to_last_chunk() == whole(CHAT)
    assert later.read_head().status == 200
    assert later.read_to_last_chunk() == whole(CHAT, text=OTHER)
    router.must_rest()
    assert fleet.served[2:] == [fleet.served[0]] * 2
    assert counts(router, "streams_continued_total") == {"lost": 1}
    wait_for(router, "continue_waiting", 0)


def test_lost_streams_wait_in_the_order_of_their_losses(harness):
    fleet = Fleet(harness, 3, pause(3), doomed(5), doomed(5), stream(), stream(text=OTHER))
    router = harness.router(*fleet.workers, **FULL)
    occupant = begin(harness, router, 3, prompt="occupant")
    clients = [begin(harness, router, 5, prompt=str(number)) for number in range(2)]
    for lost, number in enumerate(reversed(fleet.served[1:])):
        fleet.workers[number].stuck.open()
        wait_for(router, "continue_waiting", lost + 1)
    end_occupant(fleet, occupant)
    # Who comes second gets a run that differs from what it has.
    second, (client, data) = clients
    assert data + client.read_to_last_chunk() == whole(CHAT)
    must_be_cut(*second)


def doomed(after):
    """Sends so many events; once the worker's `stuck` opens, its process ends."""

    def turn(worker, connection, message):
        worker.stuck = worker.gate()
        connection.send(HEAD + b"".join(chunk(event) for event in events_of(message.target)[:after]))
        worker.stuck.wait()
        worker.die(connection)

    return turn


def must_be_cut(client, data):
    try:
        rest = client.read_to_last_chunk()
    except (EndedEarlyError, ConnectionResetError):
        rest = b""
    assert (data + rest).replace(COMMENT, b"") == b"".join(events_of(CHAT)[:5])


def test_without_a_place_in_time_a_stream_is_cut(harness):
    fleet, router, occupant, (client, data) = lose(harness, continue_wait_secs=0.2)
    must_be_cut(client, data)
    eventually(lambda: counts(router, "streams_cut_total") == {"wait": 1}, "the cut is not counted")
    end_occupant(fleet, occupant)
    router.must_rest()
    assert len(fleet.served) == 2


def test_a_client_that_waits_gets_comments_and_may_leave(harness):
    fleet, router, occupant, (client, _) = lose(harness, stream(), continue_keepalive_secs=0.05)
    wait_for(router, "continue_waiting", 1)
    assert client.read_chunk() == COMMENT
    client.close()
    wait_for(router, "continue_waiting", 0)
    end_occupant(fleet, occupant)
    router.must_rest()
    assert len(fleet.served) == 2
    assert counts(router, "continue_memory_bytes") == {}


def test_a_queue_without_room_leaves_the_place_to_who_finds_it(harness):
    fleet, router, occupant, (client, data) = lose(harness, stream(), queue_size=0)
    wait_for(router, "continue_waiting", 1)
    wait_for(router, "queue_depth", 0)
    end_occupant(fleet, occupant)
    assert data + client.read_to_last_chunk() == whole(CHAT)
    router.must_rest()
