"""Two to sixteen processes of the router in front of one fleet, with a real Redis, as in production."""

import contextlib

import pytest

from tests.fakes.router_process import RouterProcess
from tests.fakes.wire import eventually
from tests.models import peer_frame
from vllm_router.testing import SimulatedWorker

PROMPT = (
    "You are a helpful assistant of the people who run a fleet. " * 100
)  # some 1,500 tokens: five strides
STRIDES = 5


@pytest.fixture
def workers():
    started = [SimulatedWorker(engine="instant") for _ in range(4)]
    yield started
    for worker in started:
        worker.stop()


@pytest.fixture
def start(tmp_path, redis, workers):
    """Starts so many routers, which then hear each other."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of sixteen bytes and more\n")

    def begin(count, *more):
        flags = [
            "--policy",
            "auto",
            "--decision-headers",
            "--worker-urls",
            *(worker.url for worker in workers),
        ]
        flags += ["--peer-sync", redis.url, "--peer-sync-secret-file", str(secret), *more]
        routers = [RouterProcess(tmp_path, *flags, "--router-name", f"r{number}") for number in range(count)]
        for router in routers:
            stack.callback(router.__exit__)
        for router in routers:
            router.wait()
        for router in routers:
            eventually(lambda router=router: live(router) == count - 1, "they do not hear each other")
        return routers

    with contextlib.ExitStack() as stack:
        yield begin


def live(router):
    _, status = router.call("GET", "/ha/status")
    return sum(member["state"] == "live" for member in status["members"])


def chat(router, text=PROMPT):
    """The worker that served it."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 2}
    status, _ = router.call("POST", "/v1/chat/completions", body, admin=False)
    assert status == 200
    return router.head["x-vllm-router-worker"]


def know(router, holder, strides=STRIDES):
    eventually(lambda: router.metric("coarse_index_strides") >= strides, "the decision was not told")
    # A frame may have told it while its request was under way.
    peers = router.metric("peer_sync_peers", state="live")
    frames = router.metric("peer_sync_frames_read_total", result="ok")
    eventually(lambda: router.metric("peer_sync_frames_read_total", result="ok") > frames + 2 * peers)
    eventually(lambda: router.metric("remote_requests", worker=holder) == 0, "the load was not taken back")


@pytest.mark.parametrize("count", [2, 4, 16])
def test_a_prompt_sent_through_one_is_known_to_all(start, count):
    routers = start(count)
    names = {member["name"] for member in routers[0].call("GET", "/ha/status")[1]["members"]}
    assert names == {f"r{number}" for number in range(1, count)}
    holder = chat(routers[-1])
    for router in routers[:-1]:
        know(router, holder)
        assert chat(router) == holder
    for router in routers:
        assert router.stop() == 0


def test_routers_survive_their_redis_and_one_that_stops_for_a_while(start, redis):
    routers = start(4)
    redis.kill()
    for router in routers:
        eventually(lambda router=router: router.metric("peer_sync_up") == 0, "the outage was not noticed")
        chat(router, f"{router.port} {PROMPT}")
        assert router.call("GET", "/readiness")[0] == 200
    redis.start()
    for router in routers:
        eventually(lambda router=router: live(router) == 3 and router.metric("peer_sync_up") == 1)

    stopped, *others = routers
    applied = stopped.metric("peer_sync_decisions_total", result="applied")
    stopped.pause()
    for router in others:
        eventually(lambda router=router: router.metric("peer_sync_peers", state="late") == 1)
    holder = chat(others[0], "meanwhile " + PROMPT)
    stopped.resume()
    for router in routers:
        eventually(lambda router=router: live(router) == 3)
    # It is asked once it knows: a decision of its own before would hold from then on.
    eventually(lambda: stopped.metric("peer_sync_decisions_total", result="applied") > applied)
    eventually(lambda: chat(stopped, "meanwhile " + PROMPT) == holder)


def test_a_frame_that_no_router_sealed_changes_nothing(start, redis, workers):
    routers = start(2)
    forged = peer_frame.empty(
        router=7, full=True, names=[(0, 0, workers[0].url)], loads=[(0, (10**6, 0, 10**9, 10**9, 10**9))]
    )
    redis.call("XADD", "vr:{default}:x:0000000000000007", "*", "f", peer_frame.write(forged))
    redis.call("ZADD", "vr:{default}:members", redis.call("TIME")[0].decode() + "999", "0000000000000007")
    for router in routers:
        eventually(lambda r=router: r.metric("peer_sync_frames_read_total", result="bad_seal") == 1)
        assert router.metric("remote_requests", worker=workers[0].url) == 0
        assert live(router) == 1
