"""Row 11: requests of a worker whose drain timeout has passed.

Those without a byte of a response go to another worker.
"""

import json
import re
import select
import subprocess
from pathlib import Path

import pytest

from tests.fakes.harness import Streaming, error_of
from tests.fakes.pd import prefill_response
from tests.fakes.wire import chunk, eventually, request, response

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
COMPLETIONS = "/v1/completions"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCH = (
    *(("Connection", "Upgrade"), ("Upgrade", "websocket")),
    *(("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")),
)


def cut(client, url):
    """Drains it without any time, and waits until it is gone."""
    body = json.dumps({"url": url, "timeout_secs": 0}).encode()
    assert client.ask("POST", "/admin/drain", body=body).status == 202

    def ended():
        rows = json.loads(client.ask("GET", "/admin/drain/status").body)["workers"]
        return [row["state"] for row in rows if row["url"] == url] == ["cut"]

    eventually(ended, "it was never cut")


def stuck(harness, said=b""):
    """A worker that says so much of a response to a request, and no more."""

    def answer(connection, _message):
        if said:
            connection.send(said)
        worker.stuck.wait()

    worker = harness.worker(answer)
    worker.stuck = worker.gate()
    return worker


def metric(router, name):
    lines = router.server.metrics_text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name}"))


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 100 Continue\r\n\r\n", SSE_HEAD],
    ids=["silent", "half a head", "an interim head", "the held head of a stream"],
)
def test_a_request_without_a_response_goes_to_another_worker(harness, said):
    leaving, staying = stuck(harness, said), harness.worker()
    router = harness.router(leaving, staying, **ON)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    leaving.wait_for_requests(1)
    cut(admin, leaving.url)
    answer = client.read_response()
    assert (answer.status, answer.body) == (200, b"hello")
    client.must_be_open()
    assert [len(worker.requests) for worker in (leaving, staying)] == [1, 1]
    assert [worker.url for worker in router.core.workers] == [staying.url]
    leaving.stuck.open()


def test_a_worker_that_has_not_accepted_yet_has_not_had_the_request(harness):
    """Then also what may not be repeated goes to another one."""
    leaving, staying = harness.slow_port(), harness.worker()
    router = harness.router(leaving, staying, **ON, connect_timeout_secs=30)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", "/unknown", body=b"{}"))
    router.wait_for_load(1)
    cut(admin, leaving.url)
    assert client.read_response().status == 200


def test_a_websocket_connection_that_has_not_begun_goes_to_another_worker(harness):
    leaving = stuck(harness)
    staying = harness.worker(lambda connection, _message: connection.send(response(426, b"no")))
    router = harness.router(leaving, staying, **ON)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("GET", "/v1/realtime", *SWITCH))
    leaving.wait_for_requests(1)
    cut(admin, leaving.url)
    assert client.read_response().status == 426
    leaving.stuck.open()


def test_without_another_worker_the_client_is_told_so(harness):
    leaving = stuck(harness)
    router = harness.router(leaving, **ON)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    leaving.wait_for_requests(1)
    cut(admin, leaving.url)
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "worker_drained")
    assert answer.get("retry-after") == "1"
    leaving.stuck.open()


@pytest.mark.parametrize(
    ("path", "size", "options"),
    [
        ("/unknown", 2, {}),  # it may have an effect
        (COMPLETIONS, 2 << 20, {}),  # it is streamed, and not kept
        (COMPLETIONS, 2, {"retry_max_retries": 1}),
        (COMPLETIONS, 2, {"disable_retries": True}),
    ],
)
def test_what_may_not_be_repeated_is_not(harness, path, size, options):
    leaving, staying = stuck(harness), harness.worker()
    router = harness.router(leaving, staying, **{**ON, **options})
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", path, body=b"x" * size))
    leaving.wait_for_requests(1)
    cut(admin, leaving.url)
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "worker_drained")
    assert staying.requests == []
    leaving.stuck.open()


def test_nobody_is_to_blame_for_a_drain(harness, capfd):
    """Row 11: three workers drain under one request: it is no suspect, and none of them has failed."""
    workers = [stuck(harness) for _ in range(3)]
    router = harness.router(*workers, **ON, cb_failure_threshold=1)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b'{"prompt": "the same"}'))
    last = harness.worker()
    eventually(lambda: any(worker.requests for worker in workers))
    for _ in workers[1:]:
        (at,) = (worker for worker in workers if worker.requests)
        cut(admin, at.url)
        workers.remove(at)
        eventually(lambda: any(worker.requests for worker in workers), "no other worker got it")
        at.stuck.open()
    router.core.add_worker(last.url)
    cut(admin, workers[0].url)
    workers[0].stuck.open()
    assert client.read_response().status == 200
    assert admin.ask("POST", COMPLETIONS, body=b'{"prompt": "the same"}').status == 200
    assert (metric(router, "retries_total"), metric(router, "failed_attempts_total")) == (3, 0)
    assert "breaker" not in capfd.readouterr().err


def test_a_request_between_two_attempts_does_not_mind(harness):
    """It has no part in the worker that failed it."""
    leaving = harness.worker(lambda connection, _message: connection.send(response(503, b"no")))
    router = harness.router(
        leaving, disable_retries=False, retry_initial_backoff_ms=1_000, retry_jitter_factor=0
    )
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    leaving.wait_for_requests(1)
    eventually(lambda: metric(router, "failed_attempts_total") == 1)
    staying = harness.worker()
    router.core.add_worker(staying.url)
    assert admin.ask("POST", f"/admin/drain?url={leaving.url}&timeout_secs=0", body=b"").status == 202
    assert client.read_response().status == 200


def test_a_request_that_finds_the_others_full_waits_for_a_place(harness):
    leaving = stuck(harness)

    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    staying = harness.worker(answer)
    gate = staying.gate()
    router = harness.router(
        leaving, staying, **ON, routing={"max_worker_requests": 1}, queue_size=10, queue_timeout_secs=60
    )
    clients = [harness.client(router) for _ in range(3)]
    for client in clients:
        client.send(request("POST", COMPLETIONS, body=b"{}"))
    leaving.wait_for_requests(1)
    staying.wait_for_requests(1)
    cut(harness.client(router), leaving.url)
    gate.open()
    assert [client.read_response().status for client in clients] == [200] * 3
    leaving.stuck.open()


def test_a_response_that_has_begun_is_cut(harness):
    leaving = stuck(harness, SSE_HEAD + chunk(b"data: 1\n\n"))
    staying = harness.worker()
    router = harness.router(leaving, staying, **ON)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, body=b"{}"))
    client.read_head()
    client.read_chunk()
    cut(admin, leaving.url)
    assert client.read_to_end() == b""
    assert staying.requests == []
    leaving.stuck.open()


# Two stages


def staged(harness, prefills, decodes, **options):
    urls = {"prefill_urls": [w.url for w in prefills], "decode_urls": [w.url for w in decodes]}
    return harness.router(routing=urls, **{**ON, **options})


BLOCKS = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2]],
    "remote_engine_id": "engine",
    "remote_request_id": "cmpl-x-0-12345678",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
}
PROMPT = b'{"model": "m", "prompt": "a prompt of some words, which is long enough", "max_tokens": 8}'
ANSWER = b'{"choices": [{"index": 0, "text": "hello", "finish_reason": "stop"}]}'


def answering(harness, body):
    return harness.worker(lambda connection, _message: connection.send(response(200, body)))


@pytest.mark.parametrize(
    ("connector", "stage"), [("nixl", "prefill"), ("nixl", "decode"), ("sglang", "decode")]
)
def test_a_pair_is_made_anew_without_the_worker_that_leaves(harness, connector, stage):
    leaving = stuck(harness)
    first = answering(harness, prefill_response(BLOCKS))
    second = answering(harness, ANSWER)
    prefills = [leaving, first] if stage == "prefill" else [first]
    decodes = [leaving, second] if stage == "decode" else [second]
    router = staged(harness, prefills, decodes, kv_connector=connector)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, ("Content-Type", "application/json"), body=PROMPT))
    leaving.wait_for_requests(1)
    cut(admin, leaving.url)
    answer = client.read_response()
    assert (answer.status, json.loads(answer.body)["choices"][0]["text"]) == (200, "hello")
    assert len(second.requests) >= 1
    leaving.stuck.open()


@pytest.mark.parametrize(("connector", "stage"), [("nixl", "prefill"), ("sglang", "decode")])
def test_without_another_pair_the_client_is_told_so(harness, connector, stage):
    leaving = stuck(harness)
    other = answering(harness, prefill_response(BLOCKS) if stage == "decode" else ANSWER)
    stages = ([leaving], [other]) if stage == "prefill" else ([other], [leaving])
    router = staged(harness, *stages, kv_connector=connector)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", COMPLETIONS, ("Content-Type", "application/json"), body=PROMPT))
    leaving.wait_for_requests(1)
    cut(admin, leaving.url)
    answer = client.read_response()
    assert answer.status == 503
    assert error_of(answer)["code"] in ("worker_drained", "no_workers")
    leaving.stuck.open()


LOOP = re.compile(r"^```bash\n(for worker in .*?)^```", re.DOTALL | re.MULTILINE)


def test_the_loop_of_the_page_stops_no_engine_that_has_requests(harness):
    """Row 37: over two workers, each with a request, and with an engine that comes back between them."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "drain_a_worker.md"
    workers = [Streaming(harness) for _ in range(2)]
    router = harness.router(*(each.worker for each in workers), policy="round_robin")
    clients = [harness.client(router) for _ in workers]
    for client in clients:
        client.send(request("POST", COMPLETIONS, body=b"{}"))
        client.read_head()
    (loop,) = LOOP.findall(page.read_text())
    script = f"ADMIN=127.0.0.1:{router.port}\n{loop}"
    for number, worker in enumerate(workers):
        script = script.replace(f"http://gpu-{number}:8000", worker.url)
    # A sanitizer's runtime is the router's: curl hangs with it.
    restart = 'unset LD_PRELOAD\nrestart_engine() { echo "$1"; }\n'
    with subprocess.Popen(["bash", "-c", restart + script], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for client, worker in zip(clients, workers, strict=True):
            eventually(lambda url=worker.url: any(w.draining and w.url == url for w in router.core.workers))
            assert select.select([running.stdout], [], [], 0)[0] == []
            worker.gate.open()
            client.read_to_last_chunk()
            assert running.stdout.readline() == f"{worker.url}\n"
    assert running.returncode == 0
    assert {worker.url for worker in router.core.workers} == {worker.url for worker in workers}
