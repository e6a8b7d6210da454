"""cpp/proxy/control/fleet_manager.h: what sources declare, carried out by a server."""

import json
import urllib.parse

import pytest

from tests.fakes.harness import Streaming
from tests.fakes.wire import eventually, request, response
from vllm_router.discovery import WorkerSpec

CHECKED = {"health_check_interval_secs": 0.02}


class Starting:
    """An engine that answers health checks with 503 until it is started."""

    def __init__(self, harness):
        self.started = False
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def answer(self, connection, _message):
        connection.send(response(200 if self.started else 503, b"hello"))


def row(worker, ready=True, leaving=False, drain_secs=None, incarnation=""):
    url = worker if isinstance(worker, str) else worker.url
    return WorkerSpec(url, ready=ready, leaving=leaving, drain_secs=drain_secs, incarnation=incarnation)


def declare(router, *rows, source="file", deleted=()):
    return router.core._reconcile(source, list(rows), True, list(deleted))


def states(client):
    report = json.loads(client.ask("GET", "/admin/discovery").body)
    return {worker["url"]: worker["state"] for worker in report["workers"]}


def wait_for(client, expected):
    eventually(lambda: states(client) == expected, "the fleet never became what was declared")


def test_a_declared_worker_joins_when_it_passes_its_check(harness):
    engine, other = Starting(harness), harness.worker()
    router = harness.router(other, **CHECKED)
    client = harness.client(router)
    assert declare(router, row(engine)) == ([engine.url], [], [], [])
    assert states(client) == {other.url: "serving", engine.url: "pending"}
    engine.worker.wait_for_requests(2)
    assert [worker.url for worker in router.core.workers] == [other.url]
    engine.started = True
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    assert [(worker.url, worker.healthy) for worker in router.core.workers] == [
        (other.url, True),
        (engine.url, True),
    ]


def test_without_health_checks_it_joins_unchecked(harness):
    router = harness.router(health_check_interval_secs=0)
    port = harness.refusing_port()
    declare(router, row(port))
    eventually(lambda: [worker.url for worker in router.core.workers] == [port.url])


def test_one_that_is_taken_off_the_list_before_it_joined_is_not_asked_again(harness):
    engine, other = Starting(harness), harness.worker()
    router = harness.router(**CHECKED)
    client = harness.client(router)
    declare(router, row(engine), row(other))
    wait_for(client, {engine.url: "pending", other.url: "serving"})
    declare(router, row(other))
    assert states(client) == {other.url: "serving"}
    engine.started = True
    other.wait_for_requests(len(other.requests) + 5)
    assert states(client) == {other.url: "serving"}


def test_one_that_leaves_the_list_finishes_what_it_has(harness):
    engine, *others = Streaming(harness), harness.worker(), harness.worker()
    router = harness.router(**CHECKED)
    client, streaming = harness.client(router), harness.client(router)
    declare(router, row(engine))
    wait_for(client, {engine.url: "serving"})
    streaming.send(request("POST", "/v1/completions", body=b"{}"))
    streaming.read_head()
    declare(router, *map(row, others))
    wait_for(client, {engine.url: "draining", **{other.url: "serving" for other in others}})
    for _ in range(4):
        assert client.ask("POST", "/v1/completions", body=b"{}").body == b"hello"
    engine.gate.open()
    assert streaming.read_to_last_chunk().endswith(b"data: [DONE]\n\n")
    wait_for(client, {other.url: "serving" for other in others})
    drained = json.loads(client.ask("GET", "/admin/drain/status").body)["workers"]
    assert [(one["url"], one["state"]) for one in drained] == [(engine.url, "drained")]
    streaming.must_be_open()


def test_one_that_ends_soon_is_cut_before_it_is_killed(harness):
    engine, other = Streaming(harness), harness.worker()
    router = harness.router(**CHECKED)
    client, streaming = harness.client(router), harness.client(router)
    declare(router, row(engine))
    wait_for(client, {engine.url: "serving"})
    streaming.send(request("POST", "/v1/completions", body=b"{}"))
    streaming.read_head()
    assert declare(router, row(engine, leaving=True, drain_secs=0.1), row(other))[2] == [engine.url]
    wait_for(client, {engine.url: "left", other.url: "serving"})
    assert b"[DONE]" not in streaming.read_to_end()
    assert [worker.url for worker in router.core.workers] == [other.url]


def test_a_drain_by_an_admin_gives_no_more_time_than_the_source_does(harness):
    """The kubelet kills a deleted pod, whoever drained it before."""
    engine, other = Streaming(harness), harness.worker()
    router = harness.router(other, **CHECKED)
    client, streaming = harness.client(router), harness.client(router)
    declare(router, row(engine))
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    while not [one for one in engine.worker.requests if one.method == "POST"]:
        streaming = harness.client(router)
        streaming.send(request("POST", "/v1/completions", body=b"{}"))
        streaming.read_head()
    body = json.dumps({"url": engine.url, "timeout_secs": 300}).encode()
    assert client.ask("POST", "/admin/drain", body=body).status == 202
    declare(router, row(engine, leaving=True, drain_secs=0.1))
    assert b"[DONE]" not in streaming.read_to_end()
    wait_for(client, {other.url: "serving", engine.url: "left"})


def test_the_ranks_of_a_silent_engine_take_one_check_together(harness):
    """One engine must not take all places, of which there are 128, from those that join after it."""
    silent, engine = harness.silent_port(), harness.worker()
    router = harness.router(**CHECKED)
    client = harness.client(router)
    declare(router, WorkerSpec(silent.url, data_parallel_size=300), source="dns")
    declare(router, row(engine))
    eventually(lambda: [worker.url for worker in router.core.workers] == [engine.url])
    assert len([state for state in states(client).values() if state == "pending"]) == 300


def test_one_that_is_not_ready_gets_no_new_requests_and_comes_back(harness):
    engine, other = harness.worker(), harness.worker()
    router = harness.router(other, **CHECKED)
    client = harness.client(router)
    declare(router, row(engine))
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    declare(router, row(engine, ready=False))
    assert states(client)[engine.url] == "resting"
    for _ in range(4):
        assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    assert not [one for one in engine.requests if one.method == "POST"]
    declare(router, row(engine))
    for _ in range(4):
        client.ask("POST", "/v1/completions", body=b"{}")
    assert [one for one in engine.requests if one.method == "POST"]


def test_an_engine_that_started_anew_is_checked_and_has_nothing_of_the_old_one(harness):
    engine = Starting(harness)
    engine.started = True
    router = harness.router(policy="auto", **CHECKED)
    client = harness.client(router)
    declare(router, row(engine, incarnation="a/0"))
    wait_for(client, {engine.url: "serving"})
    prompt = json.dumps({"prompt": "long " * 200}).encode()
    assert client.ask("POST", "/v1/completions", body=prompt).status == 200
    blocks = lambda: json.loads(client.ask("GET", "/admin/index/stats").body)["worker_blocks"]  # noqa: E731
    eventually(lambda: blocks() > 0)
    engine.started = False
    assert declare(router, row(engine, incarnation="a/1"))[2] == [engine.url]
    assert states(client) == {engine.url: "pending"}
    assert blocks() == 0
    engine.started = True
    wait_for(client, {engine.url: "serving"})
    assert [worker.selections for worker in router.core.workers] == [0]


def test_a_new_engine_is_not_taken_for_the_old_one_that_was_down(harness):
    """The checks of the old one say nothing: it is up now, and found down when it goes down."""
    engine, other = Starting(harness), harness.worker()
    engine.started = True
    router = harness.router(other, **CHECKED)
    client = harness.client(router)
    declare(router, row(engine, incarnation="1"))
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    engine.started = False
    router.wait_until_unhealthy(engine)
    engine.started = True
    declare(router, row(engine, incarnation="2"))
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    assert all(worker.healthy for worker in router.core.workers)
    engine.started = False
    router.wait_until_unhealthy(engine)


def test_an_empty_list_is_held_and_those_that_are_down_go(harness):
    engines = [Starting(harness), Starting(harness)]
    for engine in engines:
        engine.started = True
    router = harness.router(**CHECKED)
    client = harness.client(router)
    urls = [engine.url for engine in engines]
    declare(router, *map(row, engines))
    wait_for(client, dict.fromkeys(urls, "serving"))
    assert sorted(declare(router)[3]) == sorted(urls)
    assert states(client) == dict.fromkeys(urls, "held")
    assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    engines[0].started = False
    wait_for(client, {urls[1]: "held"})
    declare(router, row(engines[1]))
    assert states(client) == {urls[1]: "serving"}


def test_a_held_list_is_adopted_by_an_admin(harness):
    engine = harness.worker()
    router = harness.router(**CHECKED)
    client = harness.client(router)
    declare(router, row(engine), source="dns")
    wait_for(client, {engine.url: "serving"})
    declare(router, source="dns")
    answer = client.ask("POST", "/admin/discovery/adopt?source=dns")
    assert json.loads(answer.body) == {"source": "dns", "left": [engine.url]}
    wait_for(client, {})


def test_a_declared_worker_is_not_removed_by_hand_but_drained(harness):
    engine, other = harness.worker(), harness.worker()
    router = harness.router(other, **CHECKED)
    client = harness.client(router)
    declare(router, row(engine))
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    answer = client.ask("POST", f"/remove_worker?url={engine.url}")
    assert answer.status == 409
    assert b"declared by file" in answer.body
    assert client.ask("DELETE", "/workers/" + urllib.parse.quote(engine.url, safe="")).status == 409
    body = json.dumps({"url": engine.url}).encode()
    assert client.ask("POST", "/admin/drain", body=body).status == 202
    wait_for(client, {other.url: "serving", engine.url: "left"})
    declare(router, row(engine))
    assert states(client)[engine.url] == "left", "the admin's drain outlasts the lists"
    assert client.ask("DELETE", "/admin/drain", body=body).status == 200
    wait_for(client, {other.url: "serving", engine.url: "serving"})
    assert client.ask("POST", f"/remove_worker?url={other.url}").status == 200


def test_a_thousand_that_come_at_once_are_published_together(harness):
    engine = harness.worker()
    router = harness.router(health_check_interval_secs=0)
    client = harness.client(router)
    declare(router, *(row(f"{engine.url}/{number}") for number in range(1000)))
    eventually(lambda: len(router.core.workers) == 1000)
    assert set(states(client).values()) == {"serving"}


def test_what_waits_when_the_server_ends_joins_the_library(harness):
    engine = Starting(harness)
    router = harness.router(**CHECKED)
    declare(router, row(engine))
    engine.worker.wait_for_requests(1)
    assert router.core.workers == []
    router.shutdown()
    router.must_end()
    assert [worker.url for worker in router.core.workers] == [engine.url]


@pytest.mark.parametrize("listed", [False, True])
def test_a_worker_that_never_starts_is_named_once_in_the_log(harness, capfd, listed):
    engine = Starting(harness)
    router = harness.router(worker_startup_timeout_secs=1, **CHECKED)
    if listed:
        declare(router, row(engine))
        said = ""

        def warned():
            nonlocal said
            said += capfd.readouterr().err
            return "has not passed its health check (/health) for 1 s" in said

        eventually(warned)
        assert engine.url in said
    else:
        engine.started = True
        router.core.add_worker(engine.url)
        engine.worker.wait_for_requests(3)
        assert "has not passed" not in capfd.readouterr().err
