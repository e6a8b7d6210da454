"""cpp/proxy/peer_sync/peer_sync_service.h: what follows in a server, also from hostile members of a fleet."""

import re

import pytest

from tests.fakes.wire import eventually
from tests.models import peer_frame
from tests.proxy.test_peer_sync import (
    ask,
    chat,
    chosen,
    get,
    metric,
    open_router,
    publish,
    status,
    wait_until_connected,
)
from tests.proxy.test_peer_sync import strides as strides_of


@pytest.fixture
def workers(harness):
    return [harness.worker(), harness.worker()]


def wait_until_up(harness, router, up=True):
    eventually(lambda: (get(harness, router, "/ha/health").status == 200) is up)


def test_a_cache_that_an_admin_empties_is_empty_for_all(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    chosen(harness, one)
    eventually(lambda: strides_of(other) >= 11)
    assert ask(harness, one, "POST", "/flush_cache")[0] == 200
    eventually(lambda: strides_of(other) == 0)


def hostile(workers, router, sequence, **members):
    names = [(index, 0, worker.url) for index, worker in enumerate(workers)]
    frame = peer_frame.empty(router=router, sequence=sequence, full=True, names=names, **members)
    return {"router": router, "bytes": peer_frame.write(frame)}


def test_suspects_in_each_frame_are_checked_every_two_seconds_at_most(harness, redis):
    asked = []

    def answer(connection, message):
        if message.target == "/health":
            asked.append(message)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    workers = [harness.worker(answer) for _ in range(4)]
    router = open_router(harness, workers, redis, health_check_interval_secs=3600, load_poll_interval_secs=0)
    wait_until_up(harness, router)
    eventually(lambda: all(worker.healthy for worker in router.core.workers))
    before = len(asked)
    for sequence in range(1, 201):
        publish(redis, hostile(workers, 99, sequence, suspects=[(index, 1) for index in range(4)]))
    eventually(lambda: metric(router, "peer_sync_frames_read_total", result="ok") == 200)
    assert before < len(asked) <= before + 3 * len(workers)
    assert all(worker.healthy for worker in router.core.workers)
    assert chat(harness, router).status == 200


def test_loads_and_decisions_of_a_hostile_router_stop_no_request(harness, redis, workers):
    router = open_router(harness, workers, redis)
    wait_until_up(harness, router)
    most = 2**48
    for sequence in range(1, 101):
        publish(
            redis,
            hostile(
                workers,
                99,
                sequence,
                loads=[(index, (most,) * 5) for index in range(2)],
                forgotten=[(index, 0) for index in range(2)],
            ),
        )
    eventually(lambda: metric(router, "peer_sync_frames_read_total", result="ok") == 100)
    for number in range(10):
        assert chat(harness, router, f"{number} " * 200).status == 200
    assert get(harness, router, "/ha/workers").status == 200


def test_a_frame_that_is_played_again_suspects_and_forgets_nothing(harness, redis, workers):
    """Whoever may write to Redis can copy what was sealed, and not make it newer."""
    router = open_router(harness, workers, redis)
    wait_until_up(harness, router)
    wipes = hostile(workers, 99, 5, forgotten=[(index, 0) for index in range(2)])
    publish(redis, wipes)
    publish(redis, hostile(workers, 99, 6))
    eventually(lambda: metric(router, "peer_sync_frames_read_total", result="ok") == 2)
    holder = chosen(harness, router)
    publish(redis, wipes)
    publish(redis, hostile(workers, 99, 7))
    eventually(lambda: status(harness, router)["members"][0]["sequence"] == 7)
    reply = chat(harness, router)
    assert reply.get("x-vllm-router-worker") == holder
    assert not re.match("0/", reply.get("x-vllm-router-cache-status"))
