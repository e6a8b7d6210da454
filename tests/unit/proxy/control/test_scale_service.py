"""cpp/proxy/control/scale_service.h: what autoscalers are told of fleets of each kind."""

import json

import pytest

from tests.fakes.harness import Streaming
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.prometheus_text import parse
from tests.fakes.redis_server import RedisServer
from tests.fakes.wire import chunk, chunked, eventually, request
from tests.proxy.test_admission import Gated
from tests.proxy.test_peer_sync import get, open_router, wait_until_connected
from tests.unit.proxy.control.test_load_poller import Says, vllm
from vllm_router.discovery import WorkerSpec

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def asked(harness, router, model=None):
    answer = get(harness, router, "/scale" if model is None else f"/scale?model={model}")
    return json.loads(answer.body) if answer.status == 200 else {}


def wait_for(harness, router, model=None, **members):
    last = {}

    def fits():
        last.update(asked(harness, router, model))
        return members.items() <= last.items()

    eventually(fits, f"never {members}")
    return last


def metric(router, name, model=""):
    return parse(router.server.metrics_text())[f"vllm_router_scale_{name}"].value(model=model)


def post(client, body=b'{"stream": true}', path="/v1/completions"):
    client.send(request("POST", path, body=body))


def test_an_idle_fleet_is_not_saturated_and_wants_no_more_than_there_is(harness):
    router = harness.router(harness.worker(), harness.worker())
    assert wait_for(harness, router, stale=False) == {
        "model": "",
        "ready": 2,
        "pending": 0,
        "draining": 0,
        "saturation": 0.0,
        "queued": 0,
        "desired_replicas": 2,
        "removable": [],
        "stale": False,
    }


def test_requests_by_slots_are_the_saturation(harness):
    streaming = Streaming(harness)
    router = harness.router(streaming, routing={"max_worker_requests": 4})
    clients = [harness.client(router) for _ in range(4)]
    for client in clients:
        post(client)
    wait_for(harness, router, desired_replicas=2, stale=False)
    assert metric(router, "requests_fleet") == 4
    assert metric(router, "queued_fleet") == 0  # each has its first token
    assert 0.8 < metric(router, "saturation_fleet") <= 1
    assert metric(router, "desired_replicas") == 2
    assert metric(router, "stale") == 0
    streaming.gate.open()
    for client in clients:
        assert client.read_response().status == 200


def test_load_that_nothing_measures_makes_it_stale(harness):
    streaming = Streaming(harness)
    router = harness.router(streaming)
    client = harness.client(router)
    post(client)
    said = wait_for(harness, router, stale=True)
    assert (said["desired_replicas"], metric(router, "stale")) == (1, 1)
    streaming.gate.open()
    assert client.read_response().status == 200
    wait_for(harness, router, stale=False)


def test_what_waits_for_a_place_counts_as_queued(harness):
    gated = Gated(harness)
    router = harness.router(gated.worker, routing={"max_worker_requests": 1})
    clients = [harness.client(router) for _ in range(3)]
    for client in clients:
        client.send(request("POST", "/v1/completions", body=b"{}"))
    wait_for(harness, router, queued=3)
    gated.let(3)
    for client in clients:
        assert client.read_response().status == 200


def test_ranks_of_an_engine_are_one_replica(harness):
    streaming = Streaming(harness)
    router = harness.router(
        *(f"{streaming.url}@{rank}" for rank in range(4)), routing={"max_worker_requests": 1}
    )
    client = harness.client(router)
    post(client)
    assert wait_for(harness, router, ready=1, stale=False)["desired_replicas"] == 1
    eventually(lambda: metric(router, "saturation_fleet") > 0)
    assert metric(router, "saturation_fleet") <= 0.25
    streaming.gate.open()
    assert client.read_response().status == 200


def test_workers_that_leave_or_are_down_are_not_ready(harness):
    a, b, c = (harness.worker() for _ in range(3))
    router = harness.router(a, b, c)
    router.core.drain_worker(a.url)
    router.core.set_healthy(b.url, False)
    wait_for(harness, router, ready=1, draining=1, stale=False)
    router.core.set_healthy(c.url, False)
    said = wait_for(harness, router, ready=0, stale=True)
    assert said["desired_replicas"] >= 2  # a router that is cut off takes no workers away
    assert said["removable"] == []


def test_each_model_has_a_row_and_an_adapter_is_its_base_models(harness):
    a, b = ModelWorker(harness, "a", adapters={"sql": "a"}), ModelWorker(harness, "a")
    c = ModelWorker(harness, "c", "d")
    router = harness.router(a, b, c, model_refresh_secs=3600)
    wait_until_known(router, 4)
    assert wait_for(harness, router, "a", ready=2)["model"] == "a"
    assert asked(harness, router, "c")["ready"] == asked(harness, router, "d")["ready"] == 1
    assert asked(harness, router, "sql") == {}
    rows = parse(router.server.metrics_text())["vllm_router_scale_desired_replicas"]
    assert sorted(rows.values_of("model")) == ["a", "c", "d"]


def test_a_model_that_is_asked_for_is_woken_and_no_other(harness):
    router = harness.router(ModelWorker(harness, "a"), model_refresh_secs=3600, models=["m", "n"])
    wait_until_known(router, 1)
    wait_for(harness, router, "m", ready=0, desired_replicas=0, stale=False)
    answer = harness.client(router).ask("POST", "/v1/completions", body=b'{"model": "m"}')
    assert answer.status == 503
    wait_for(harness, router, "m", desired_replicas=1)
    assert asked(harness, router, "n")["desired_replicas"] == 0


def test_an_empty_fleet_without_models_is_woken_by_any_request(harness):
    router = harness.router()
    wait_for(harness, router, ready=0, desired_replicas=0)
    client = harness.client(router)
    client.ask("GET", "/anything")
    assert client.ask("POST", "/v1/completions", body=b"{}").status == 503
    wait_for(harness, router, desired_replicas=1)


def test_a_maximum_holds_at_once_and_names_the_idlest_workers_that_may_go(harness):
    streaming, idle = Streaming(harness), harness.worker()
    router = harness.router(
        streaming, idle, scale_max=1, routing={"max_worker_requests": 4}, policy="round_robin"
    )
    client = harness.client(router)
    post(client)
    eventually(lambda: router.loads() == [1, 0])
    assert wait_for(harness, router, desired_replicas=1, removable=[idle.url])["ready"] == 2
    streaming.gate.open()
    assert client.read_response().status == 200


def test_kv_use_that_workers_tell_is_a_saturation_and_is_missed_when_they_stop(harness):
    told = [vllm(1, 0) + "vllm:kv_cache_usage_perc 0.9\n"]
    says = Says(metrics=lambda _: told[0])
    router = harness.router(harness.worker(says), load_poll_interval_secs=0.05)
    wait_for(harness, router, desired_replicas=2, stale=False)
    assert metric(router, "saturation_fleet") == pytest.approx(0.9)
    told[0] = vllm(1, 0)
    assert wait_for(harness, router, stale=True)["desired_replicas"] == 2


PROMPT = json.dumps({"prompt": "word " * 2000}).encode()


def learn(harness, router):
    client = harness.client(router)
    for _ in range(25):
        assert client.ask("POST", "/v1/completions", body=PROMPT).status == 200
    return client


def test_the_time_that_prompts_wait_is_known_once_streams_have_told_the_rate(harness):
    gate = None

    def answer(connection, message):
        if b"held" in message.body:
            gate.wait()
        connection.send(HEAD + chunk(b"data: 1\n\n") + chunked(b"data: [DONE]\n\n"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, policy="least_load")
    wait_for(harness, router, ready=1)
    assert "vllm_router_scale_prefill_seconds_fleet{" not in router.server.metrics_text()
    client = learn(harness, router)
    eventually(lambda: "vllm_router_scale_prefill_seconds_fleet{" in router.server.metrics_text())
    assert metric(router, "prefill_seconds_fleet") == 0
    client.send(request("POST", "/v1/completions", body=PROMPT.replace(b"word", b"held", 1)))
    eventually(lambda: metric(router, "prefill_seconds_fleet") > 0)
    assert asked(harness, router)["stale"] is False
    gate.open()
    assert client.read_response().status == 200


def test_responses_in_one_piece_tell_no_rate(harness):
    router = harness.router(harness.worker(), policy="least_load")
    learn(harness, router)
    router.core.add_worker(harness.worker().url)
    wait_for(harness, router, ready=2)  # a later look
    assert "vllm_router_scale_prefill_seconds_fleet{" not in router.server.metrics_text()


def test_routers_that_meet_say_the_same_of_one_fleet(harness, redis):
    streaming = Streaming(harness)
    one, other = (open_router(harness, [streaming], redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    clients = [harness.client(router) for router in (one, one, other)]
    for client in clients:
        post(client)
    for router in (one, other):
        eventually(lambda router=router: metric(router, "requests_fleet") == 3)
    streaming.gate.open()
    for client in clients:
        assert client.read_response().status == 200


def test_a_router_that_does_not_hear_the_others_is_stale(harness, tmp_path):
    with RedisServer(tmp_path) as redis:
        router = open_router(harness, [harness.worker()], redis)
        wait_for(harness, router, stale=False)
        redis.kill()
        assert wait_for(harness, router, stale=True)["desired_replicas"] == 1
        redis.start()
        wait_for(harness, router, stale=False)


def test_workers_that_start_are_pending_for_the_models_that_they_may_serve(harness):
    slow = harness.silent_port()
    router = harness.router(
        ModelWorker(harness, "a"), model_refresh_secs=3600, models=["m", "n"], health_check_interval_secs=600
    )
    wait_until_known(router, 1)
    router.core._reconcile("file", [WorkerSpec(slow.url, models=["m"])], True, [])
    said = wait_for(harness, router, "m", ready=0, pending=1)
    assert said["stale"] is True
    assert asked(harness, router, "n")["pending"] == 0
    router.core._reconcile("file", [WorkerSpec(slow.url)], True, [])
    wait_for(harness, router, "m", pending=0, stale=True)  # it may be of any model


def test_as_many_workers_that_may_go_are_named_as_fit(harness):
    router = harness.router(*(f"http://127.0.0.1:{port}" for port in range(1, 101)), scale_max=1)
    said = wait_for(harness, router, ready=100, desired_replicas=1)
    assert len(said["removable"]) == 64
    assert said["removable"][0] == "http://127.0.0.1:100"
