"""What the router answers itself: health, the model list, the fleet."""

import json
import threading
import urllib.parse

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, request, response


def models(*ids: str, **extra):
    """A worker that serves these models."""
    data = [{"id": name, "object": "model", "created": 1, "owned_by": "vllm", **extra} for name in ids]
    body = json.dumps({"object": "list", "data": data}).encode()

    def answer(connection, message):
        assert message.target in ("/v1/models", "/health"), message.target
        connection.send(response(200, body, ("Content-Type", "application/json")))

    return answer


def get_json(client, path):
    answer = client.ask("GET", path)
    assert answer.get("content-type") == "application/json"
    return answer.status, json.loads(answer.body)


# ---- health


def test_liveness_is_always_ok(harness):
    client = harness.client(harness.router())
    answer = client.ask("GET", "/liveness")
    assert (answer.status, answer.body, answer.get("content-type")) == (
        200,
        b"OK",
        "text/plain; charset=utf-8",
    )


def test_health_names_the_unhealthy_and_fails_only_when_nobody_serves(harness):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first, second)
    client = harness.client(router)
    assert client.ask("GET", "/health").status == 200
    router.core.set_healthy(first.url, False)
    answer = client.ask("GET", "/health")
    assert answer.status == 200
    assert first.url in answer.body.decode()
    router.core.set_healthy(second.url, False)
    assert client.ask("GET", "/health").status == 503
    router.core.set_healthy(second.url, True)
    assert client.ask("GET", "/health").status == 200
    assert first.requests == second.requests == []


def test_health_says_how_many_workers_are_not_checked_yet(harness):
    """mending row 7: nothing is called healthy before a check has said so."""

    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    held, other = harness.worker(answer), harness.worker()
    gate = held.gate()
    router = harness.router(held, other, health_check_interval_secs=3600, health_check_timeout_secs=100)
    client = harness.client(router)
    other.wait_for_requests(1)
    eventually(lambda: client.ask("GET", "/health").body == b"Serving. Not checked yet: 1 of 2 servers")
    assert client.ask("GET", "/health").status == 200
    router.core.set_healthy(other.url, False)
    assert client.ask("GET", "/health").body.decode() == (
        f'Serving. Not checked yet: 1 of 2 servers. Unhealthy servers: ["{other.url}"]'
    )
    router.core.set_healthy(other.url, True)
    gate.open()
    eventually(lambda: client.ask("GET", "/health").body == b"All servers healthy")


def test_health_as_the_reference_has_it_is_503_until_all_are_checked(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(
        worker, health_check_interval_secs=3600, health_check_timeout_secs=100, health_compat=True
    )
    client = harness.client(router)
    reply = client.ask("GET", "/health")
    assert (reply.status, reply.body) == (503, b"Not checked yet: 1 of 1 servers")
    gate.open()
    eventually(lambda: client.ask("GET", "/health").status == 200)


def test_a_worker_that_was_added_has_been_checked(harness):
    """mending row 7: the check that let it in counts."""
    router = harness.router(health_check_interval_secs=3600, health_compat=True)
    client = harness.client(router)
    assert client.ask("POST", f"/add_worker?url={harness.worker().url}").status == 200
    assert client.ask("GET", "/health").body == b"All servers healthy"


def test_readiness_needs_a_worker_that_may_be_chosen(harness):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    assert get_json(client, "/readiness") == (
        200,
        {"status": "ready", "healthy_workers": 1, "total_workers": 1},
    )
    router.core.set_healthy(worker.url, False)
    status, body = get_json(client, "/readiness")
    assert (status, body["status"], body["total_workers"]) == (503, "not_ready", 1)
    router.core.remove_worker(worker.url)
    assert get_json(client, "/readiness")[0] == 503


# ---- the model list


def test_the_model_list_is_merged_over_the_workers_without_repeats(harness):
    router = harness.router(harness.worker(models("a", "b")), harness.worker(models("b", "c", root="/x")))
    status, body = get_json(harness.client(router), "/v1/models")
    assert status == 200
    assert body["object"] == "list"
    assert [model["id"] for model in body["data"]] == ["a", "b", "c"]
    assert body["data"][2]["root"] == "/x"


@pytest.mark.parametrize("trouble", ["refuses", "resets", "garbage", "500", "no json", "no list", "hangs up"])
def test_the_model_list_does_without_a_worker_in_trouble(harness, trouble):
    bad = {
        "resets": lambda connection, _: connection.reset(),
        "garbage": lambda connection, _: connection.send(b"what?\r\n\r\n"),
        "500": lambda connection, _: connection.send(response(500, b"{}")),
        "no json": lambda connection, _: connection.send(response(200, b"<html>")),
        "no list": lambda connection, _: connection.send(response(200, b'{"data": {"id": 1}}')),
        "hangs up": lambda connection, _: connection.send(b"HTTP/1.1 200 OK\r\n") or connection.close(),
    }
    failing = harness.refusing_port() if trouble == "refuses" else harness.worker(bad[trouble])
    router = harness.router(failing, harness.worker(models("a")))
    status, body = get_json(harness.client(router), "/v1/models")
    assert (status, [model["id"] for model in body["data"]]) == (200, ["a"])


def test_the_model_list_is_503_when_no_worker_can_say(harness):
    answer = harness.client(harness.router(harness.refusing_port())).ask("GET", "/v1/models")
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")
    answer = harness.client(harness.router()).ask("GET", "/v1/models")
    assert answer.status == 503


def test_the_model_list_is_asked_of_all_workers_at_once(harness):
    together = threading.Barrier(3)

    def answer(connection, message):
        together.wait(30)
        models("a")(connection, message)

    router = harness.router(*(harness.worker(answer) for _ in range(3)))
    assert harness.client(router).ask("GET", "/v1/models").status == 200


def test_the_model_list_asks_ranks_of_one_host_once_and_with_the_workers_key(harness):
    worker = harness.worker(models("a"))
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", api_key="key")
    assert harness.client(router).ask("GET", "/v1/models").status == 200
    assert [message.get("authorization") for message in worker.requests] == ["Bearer key"]


def test_the_model_list_skips_workers_that_are_unhealthy(harness):
    failing, healthy = harness.worker(models("failing")), harness.worker(models("healthy"))
    router = harness.router(failing, healthy)
    router.core.set_healthy(failing.url, False)
    status, body = get_json(harness.client(router), "/v1/models")
    assert (status, [model["id"] for model in body["data"]]) == (200, ["healthy"])
    assert failing.connections == []


@pytest.mark.parametrize("framing", ["chunked", "until close"])
def test_the_model_list_understands_every_framing(harness, framing):
    body = b'{"object": "list", "data": [{"id": "a"}]}'

    def answer(connection, _message):
        if framing == "chunked":
            connection.send(
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for at in range(0, len(body), 7):
                piece = body[at : at + 7]
                connection.send(b"%x\r\n" % len(piece), piece, b"\r\n")
            connection.send(b"0\r\n\r\n")
        else:
            connection.send(b"HTTP/1.0 200 OK\r\n\r\n", body)
            connection.close()

    status, merged = get_json(harness.client(harness.router(harness.worker(answer))), "/v1/models")
    assert (status, merged["data"]) == (200, [{"id": "a"}])


# ---- the fleet


def test_list_workers_names_them_in_order(harness):
    urls = [harness.refusing_port().url for _ in range(3)]
    assert get_json(harness.client(harness.router(*urls)), "/list_workers") == (200, {"urls": urls})


def test_workers_describes_each(harness):
    first, second = harness.refusing_port().url, harness.refusing_port().url
    router = harness.router(first, second)
    router.core.drain_worker(second)
    status, body = get_json(harness.client(router), "/workers")
    assert status == 200
    assert body["total"] == 2
    assert body["stats"]["regular_count"] == 2
    described = body["workers"]
    assert [worker["url"] for worker in described] == [first, second]
    assert [worker["draining"] for worker in described] == [False, True]
    assert described[0]["is_healthy"] is True
    assert described[0]["load"] == 0
    assert described[0]["worker_type"] == "regular"


def test_workers_shows_the_load_of_the_moment(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    busy, watching = harness.client(router), harness.client(router)
    busy.send(request())
    worker.wait_for_requests(1)
    assert get_json(watching, "/workers")[1]["workers"][0]["load"] == 1
    gate.open()
    busy.read_response()
    router.wait_for_load(0)
    assert get_json(watching, "/workers")[1]["workers"][0]["load"] == 0


@pytest.mark.parametrize("encoded", [False, True])
def test_one_worker_is_described_by_its_url(harness, encoded):
    url = harness.refusing_port().url
    client = harness.client(harness.router(url))
    path = urllib.parse.quote(url, safe="") if encoded else url
    status, body = get_json(client, f"/workers/{path}")
    assert (status, body["url"]) == (200, url)
    status, body = get_json(client, "/workers/http%3A%2F%2Fnobody")
    assert (status, body["code"]) == (404, "WORKER_NOT_FOUND")
    assert get_json(client, "/workers/%zz")[0] == 404


# ---- adding


def quoted(url: str) -> str:
    return urllib.parse.quote(url, safe="")


def test_a_worker_that_is_added_serves(harness):
    worker = harness.worker()
    router = harness.router()
    client = harness.client(router)
    assert client.ask().status == 503
    answer = client.ask("POST", f"/add_worker?url={quoted(worker.url)}")
    assert (answer.status, answer.body) == (200, f"Successfully added worker: {worker.url}".encode())
    assert [message.target for message in worker.requests] == ["/health"]
    assert client.ask().status == 200


def test_add_worker_takes_an_unquoted_url_and_asks_the_health_endpoint(harness):
    worker = harness.worker(path="/prefix")
    router = harness.router(health_check_endpoint="/ping")
    assert harness.client(router).ask("POST", f"/add_worker?url={worker.url}").status == 200
    assert worker.requests[0].target == "/prefix/ping"


def test_add_worker_waits_until_the_worker_is_healthy(harness):
    def wake_up(connection, _message):
        connection.send(response(200 if len(worker.requests) >= 3 else 503, b""))

    worker = harness.worker(wake_up)
    router = harness.router(worker_startup_check_interval=0.01)
    client = harness.client(router)
    client.send(request("POST", f"/add_worker?url={worker.url}", body=b""))
    assert client.read_response().status == 200
    assert len(worker.requests) == 3
    assert router.core.worker_urls == [worker.url]


def test_add_worker_gives_up_after_the_startup_timeout(harness):
    port = harness.refusing_port()
    router = harness.router(worker_startup_timeout_secs=0.1, worker_startup_check_interval=0.02)
    answer = harness.client(router).ask("POST", f"/add_worker?url={port.url}")
    assert (answer.status, error_of(answer)["code"]) == (400, "invalid_argument")
    assert "--worker-startup-timeout-secs" in error_of(answer)["message"]
    assert router.core.worker_urls == []


@pytest.mark.parametrize("query", ["", "?", "?url", "?url=", "?u=http://a", "?url=%zz"])
def test_add_and_remove_without_a_url_say_what_is_missing(harness, query):
    client = harness.client(harness.router())
    for path in ("/add_worker", "/remove_worker"):
        answer = client.ask("POST", path + query)
        assert answer.status == 400
        assert "?url=http" in error_of(answer)["message"]


@pytest.mark.parametrize("url", ["gpu-0", "ftp://gpu-0", "http://", "http://a:99999", "http://a:b"])
def test_a_bad_url_is_refused_with_a_sentence(harness, url):
    router = harness.router()
    client = harness.client(router)
    answer = client.ask("POST", f"/add_worker?url={quoted(url)}")
    assert answer.status == 400
    assert url in error_of(answer)["message"]
    answer = client.ask("POST", "/workers", body=json.dumps({"url": url}).encode())
    assert answer.status == 400
    assert json.loads(answer.body)["code"] == "ADD_WORKER_FAILED"
    assert router.core.worker_urls == []


def test_post_workers_adds_with_a_weight(harness):
    worker = harness.worker()
    router = harness.router()
    client = harness.client(router)
    answer = client.ask("POST", "/workers", body=json.dumps({"url": worker.url, "weight": 2.5}).encode())
    assert answer.status == 200
    assert json.loads(answer.body)["success"] is True
    assert get_json(client, "/workers")[1]["workers"][0]["weight"] == 2.5


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"url": 1}', b'{"URL": "http://a"}', b'{"url": "http://a", "weight": "x"}']
)
def test_post_workers_refuses_a_body_that_says_nothing(harness, body):
    router = harness.router()
    client = harness.client(router)
    answer = client.ask("POST", "/workers", body=body)
    assert (answer.status, json.loads(answer.body)["code"]) == (400, "ADD_WORKER_FAILED")
    client.must_be_open()


def test_an_admin_body_has_its_own_small_limit(harness):
    client = harness.client(harness.router())
    answer = client.ask("POST", "/workers", body=b" " * 65_537)
    assert (answer.status, error_of(answer)["code"]) == (413, "body_too_large")
    client.must_be_closed()


def test_an_admin_body_may_be_chunked(harness):
    worker = harness.worker()
    router = harness.router()
    client = harness.client(router)
    client.send(request("POST", "/workers", ("Transfer-Encoding", "chunked")))
    body = json.dumps({"url": worker.url}).encode()
    client.send(b"%x\r\n" % len(body) + body, b"\r\n0\r\n\r\n")
    assert client.read_response().status == 200


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (("POST", "/add_worker?url={url}&weight=-3"), "-3"),
        (("POST", "/add_worker?url={url}&weight=a+lot"), '"a lot"; it must be a number'),
        (("POST", "/add_worker?url={url}&weight=1&weight=2"), "'weight' is given more than once"),
        (("POST", "/add_worker?url={url}&url={url}2"), "'url' is given more than once"),
        (("POST", "/add_worker?url=%zz"), r'"%zz"'),
        (("POST", "/remove_worker?url={url}&url={url}2"), "'url' is given more than once"),
        (("POST", "/workers", '{{"url": "{url}", "weight": -3.0}}'), "-3"),
    ],
)
def test_what_is_wrong_without_asking_the_worker_is_refused_before_it_is_asked(harness, how, says):
    port = harness.silent_port()
    method, path, *body = (part.format(url=port.url) for part in how)
    router = harness.router(health_check_timeout_secs=100)
    answer = harness.client(router).ask(method, path, body="".join(body).encode())
    assert answer.status == 400
    parsed = json.loads(answer.body)["error"]
    assert says in (parsed if body else parsed["message"])


def test_add_worker_takes_a_weight(harness):
    worker = harness.worker()
    client = harness.client(harness.router())
    assert client.ask("POST", f"/add_worker?url={worker.url}&weight=2.5").status == 200
    assert get_json(client, "/workers")[1]["workers"][0]["weight"] == 2.5


# ---- removing


@pytest.mark.parametrize("how", ["remove_worker", "delete"])
def test_a_worker_that_is_removed_serves_no_more(harness, how):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first, second)
    client = harness.client(router)
    if how == "delete":
        answer = client.ask("DELETE", f"/workers/{quoted(first.url)}")
        assert json.loads(answer.body) == {
            "success": True,
            "message": f"Successfully removed worker: {first.url}",
        }
    else:
        answer = client.ask("POST", f"/remove_worker?url={quoted(first.url)}")
        assert answer.body == f"Successfully removed worker: {first.url}".encode()
    assert answer.status == 200
    for _ in range(4):
        assert client.ask().status == 200
    assert first.requests == []


def test_a_worker_that_is_not_there_is_removed(harness):
    """mending row 23: programs remove workers twice, and take 404 for a failure."""
    client = harness.client(harness.router())
    answer = client.ask("POST", "/remove_worker?url=http://nobody:1")
    assert (answer.status, answer.body[:27]) == (200, b'no worker "http://nobody:1"')
    answer = client.ask("DELETE", "/workers/http://nobody:1")
    assert (answer.status, json.loads(answer.body)["code"]) == (404, "WORKER_NOT_FOUND")


def test_all_ranks_of_a_host_are_added_and_removed_together(harness):
    worker = harness.worker()
    router = harness.router(routing={"intra_node_data_parallel_size": 2})
    client = harness.client(router)
    assert client.ask("POST", f"/add_worker?url={worker.url}").status == 200
    assert router.core.worker_urls == [f"{worker.url}@0", f"{worker.url}@1"]
    assert client.ask("POST", f"/remove_worker?url={worker.url}").status == 200
    assert router.core.worker_urls == []


# ---- methods and paths


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/liveness", "GET, HEAD"),
        ("PUT", "/readiness", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/list_workers", "GET, HEAD"),
        ("PATCH", "/workers", "GET, HEAD, POST"),
        ("POST", "/workers/x", "GET, HEAD, DELETE"),
        ("GET", "/add_worker", "POST"),
        ("GET", "/remove_worker", "POST"),
    ],
)
def test_a_wrong_method_is_405_and_says_which_are_right(harness, method, path, allow):
    client = harness.client(harness.router())
    answer = client.ask(method, path)
    assert (answer.status, error_of(answer)["code"], answer.get("allow")) == (
        405,
        "method_not_allowed",
        allow,
    )
    client.must_be_open()


@pytest.mark.parametrize(
    "path",
    [
        "//",
        "/metricsx",
        "/healthz",
        "/health/",
        "/workers/",
        "/v1/models/",
        "/HEALTH",
        "/version",
        "//health",
    ],
)
def test_every_other_path_goes_to_a_worker(harness, path):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert client.ask("GET", path).body == b"hello"
    assert worker.requests[0].target == path


def test_a_query_does_not_make_an_own_path_a_worker_s(harness):
    client = harness.client(harness.router())
    assert client.ask("GET", "/liveness?x=y").body == b"OK"


def test_a_worker_that_is_there_already_exists(harness):
    """mending row 23: the words that programs look for."""
    worker = harness.worker()
    answer = harness.client(harness.router(worker)).ask("POST", f"/add_worker?url={worker.url}")
    assert answer.status == 400
    assert "already exists" in error_of(answer)["message"]


def test_calls_for_the_fleet_take_a_query_or_a_body(harness):
    """mending row 32: /admin/drain took JSON only, /add_worker a query only."""
    worker = harness.worker()
    router = harness.router()
    client = harness.client(router)
    body = json.dumps({"url": worker.url, "weight": 2.5}).encode()
    assert client.ask("POST", "/add_worker", body=body).status == 200
    assert get_json(client, "/workers")[1]["workers"][0]["weight"] == 2.5
    busy = router.core.select(body=b"{}")
    answer = client.ask("POST", f"/admin/drain?url={worker.url}&timeout_secs=7.5", body=b"")
    assert json.loads(answer.body) == {"url": worker.url, "draining": True, "timeout_secs": 7.5}
    assert client.ask("DELETE", f"/admin/drain?url={worker.url}").status == 200
    busy.finish()
    assert client.ask("POST", "/remove_worker", body=body).status == 200
    assert router.core.worker_urls == []
    for call in ("/add_worker", "/remove_worker"):
        answer = client.ask("POST", call, body=b"[]")
        assert (answer.status, error_of(answer)["code"]) == (400, "invalid_argument")
        assert "'url'" in error_of(answer)["message"]


# ---- metrics


def test_metrics_on_the_main_port_are_the_routers(harness, tmp_path):
    """mending row 32: they were those of a worker, any of them."""
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    answer = client.ask("GET", "/metrics")
    assert (answer.status, answer.get("content-type")) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"vllm_router_client_connections 1" in answer.body
    assert worker.requests == []
    admins = tmp_path / "admins"
    admins.write_text("sk-admin")
    router = harness.router(worker, admin_api_key_file=str(admins), prometheus_port=0)
    assert harness.client(router).ask("GET", "/metrics").status == 401
    assert harness.client_at(router.server.metrics_port).ask("GET", "/metrics").status == 200


# ---- the metrics port


def test_without_a_metrics_port_there_is_none(harness):
    assert harness.router().server.metrics_port is None


def test_the_index_tells_what_it_holds_and_can_be_cleared(harness):
    worker = harness.worker()
    router = harness.router(worker, policy="vllm_cache_aware", prometheus_port=0)
    client = harness.client(router)
    for _ in range(2):
        body = json.dumps({"messages": [{"role": "user", "content": "x" * 1000}]}).encode()
        assert client.ask("POST", "/v1/chat/completions", body=body).status == 200
    stats = json.loads(client.ask("GET", "/admin/index/stats").body)
    assert stats["enabled"] is True
    assert (stats["policy"], stats["block_size"], stats["max_blocks_per_worker"]) == (
        "vllm_cache_aware",
        16,
        100_000,
    )
    assert (stats["blocks"], stats["prompt_blocks"], stats["matched_blocks"]) == (15, 30, 15)
    assert stats["workers"] == [{"url": worker.url, "blocks": 15, "max_blocks": 100_000, "block_size": 16}]
    text = router.server.metrics_text()
    assert "vllm_router_matched_blocks_total 15" in text
    assert f'vllm_router_index_worker_blocks{{worker="{worker.url}"}} 15' in text
    assert f'vllm_router_index_worker_block_tokens{{worker="{worker.url}"}} 16' in text

    assert json.loads(client.ask("POST", "/admin/index/clear").body) == {"cleared_worker_blocks": 15}
    stats = json.loads(client.ask("GET", "/admin/index/stats").body)
    assert (stats["blocks"], stats["worker_blocks"], stats["workers"][0]["blocks"]) == (0, 0, 0)
    assert client.ask("GET", "/admin/index/clear").status == 405


def test_without_an_index_its_endpoints_say_so(harness):
    client = harness.client(harness.router(harness.worker()))
    stats = json.loads(client.ask("GET", "/admin/index/stats").body)
    assert (stats["enabled"], stats["blocks"], stats["workers"]) == (False, 0, [])
    assert json.loads(client.ask("POST", "/admin/index/clear").body) == {"cleared_worker_blocks": 0}


# ---- paths that are none


@pytest.mark.parametrize("path", ["/admin", "/admin/", "/admin/drain/", "/admin/index?x=1"])
def test_an_unknown_admin_path_is_404_here(harness, path):
    """mending row 29: it went to a worker, with the key that was meant for the router."""
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for method in ("GET", "POST", "PUT", "DELETE"):
        answer = client.ask(method, path, body=b"{}" if method in ("POST", "PUT") else b"")
        assert (answer.status, error_of(answer)["code"]) == (404, "not_found")
    assert worker.requests == []
    assert client.ask("GET", "/administration").status == 200
    assert [message.target for message in worker.requests] == ["/administration"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_says_that_there_is_a_router(harness, tmp_path, method):
    """Row 28: agents begin with HEAD /, which took a permit and was 404 at a worker, or was rejected."""
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")
    worker = harness.worker(lambda _connection, _message: gate.wait())
    gate = worker.gate()
    limits = {"max_concurrent_requests": 1, "queue_size": 0, "rate_limit_tokens_per_second": 1}
    router = harness.router(worker, client_api_key_file=str(keys), **limits)
    busy = harness.client(router)
    busy.send(request("POST", "/x", ("Authorization", "Bearer sk-one"), body=b"{}"))
    gate.wait_for_someone()
    client = harness.client(router)
    for _ in range(3):
        answer = client.ask(method, "/?x=y")
        assert (answer.status, answer.body, answer.get("content-length")) == (200, b"", "0")
    assert len(worker.requests) == 1
    gate.open()


def test_other_methods_of_the_root_go_to_a_worker(harness):
    """Row 28: some engines take POST there."""
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for method in ("POST", "PUT", "OPTIONS"):
        assert client.ask(method, "/", body=b"{}").body == b"hello"
    assert client.ask("GET", "//").body == b"hello"
    assert client.ask("GET", "/").body == b""
    assert [message.method for message in worker.requests] == ["POST", "PUT", "OPTIONS", "GET"]
