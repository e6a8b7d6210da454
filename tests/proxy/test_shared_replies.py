"""Own endpoints that workers have to be asked for: what they cost the workers, and what they count in.

mending row 9: /v1/models and /get_loads share one refresh, at most once a second each; own endpoints count in
the rate limit.
"""

import json
import threading
import time

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import PATIENCE, eventually, request, response

LIMITED = {"rate_limit_tokens_per_second": 1}


def model_list(*ids):
    return json.dumps({"object": "list", "data": [{"id": name} for name in ids]}).encode()


def serves(*ids):
    return lambda connection, _message: connection.send(response(200, model_list(*ids)))


def ids_of(answer):
    assert answer.status == 200, answer.body
    return [model["id"] for model in json.loads(answer.body)["data"]]


def asked_for(worker, target="/v1/models"):
    return sum(message.target == target for message in list(worker.requests))


@pytest.mark.parametrize("path", ["/v1/models", "/get_loads"])
def test_a_thousand_requests_cost_each_worker_a_request_a_second(harness, path):
    """mending row 9: they were 2,990 connections to three workers."""
    loads = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
    workers = [
        harness.worker(serves("a") if path == "/v1/models" else lambda c, _: c.send(response(200, loads)))
        for _ in range(3)
    ]
    router = harness.router(*workers, threads=2)
    clients = [harness.client(router) for _ in range(50)]
    began = time.monotonic()
    bodies = set()
    for _ in range(20):
        for client in clients:
            client.send(request("GET", path))
        bodies |= {client.read_response().body for client in clients}
    assert len(bodies) == 1
    for worker in workers:
        assert len(worker.connections) <= 2 + (time.monotonic() - began)


def test_all_who_ask_at_once_share_one_refresh(harness):
    def answer(connection, message):
        gate.wait()
        serves("a")(connection, message)

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, threads=2)
    clients = [harness.client(router) for _ in range(100)]
    for client in clients:
        client.send(request("GET", "/v1/models"))
        client.wait_until_read()
    gate.wait_for_someone()
    gate.open()
    for client in clients:
        assert ids_of(client.read_response()) == ["a"]
    assert asked_for(worker) == 1


def test_while_a_worker_is_slow_the_last_list_is_served(harness):
    """mending row 9: it was asked again for every request, and waited for each time."""

    def answer(connection, message):
        if asked_for(connection.worker) > 1:
            connection.ending()
        else:
            serves("slow")(connection, message)

    slow, quick = harness.worker(answer), harness.worker(serves("quick"))
    router = harness.router(slow, quick, health_check_timeout_secs=100)
    client = harness.client(router)
    assert ids_of(client.ask("GET", "/v1/models")) == ["slow", "quick"]

    def refreshing():
        assert ids_of(client.ask("GET", "/v1/models")) == ["slow", "quick"]
        return asked_for(slow) == 2

    eventually(refreshing)
    clients = [harness.client(router) for _ in range(20)]
    for other in clients:
        assert ids_of(other.ask("GET", "/v1/models")) == ["slow", "quick"]
    assert asked_for(slow) == 2


def test_requests_pass_while_a_slow_worker_is_asked_for_its_models(harness):
    """mending row 9: the worker serves four at a time, and questions for its models held all four places."""
    places = threading.Semaphore(4)

    def answer(connection, message):
        assert places.acquire(timeout=PATIENCE)
        if message.target == "/v1/models":
            gate.wait()
        connection.send(response(200, model_list("a")))
        places.release()

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    curious = [harness.client(router) for _ in range(50)]
    for client in curious:
        client.send(request("GET", "/v1/models"))
    for client in curious:
        client.wait_until_read()
    gate.wait_for_someone()
    honest = harness.client(router)
    for _ in range(10):
        assert honest.ask("POST", "/v1/completions", body=b"{}").status == 200
    gate.open()
    for client in curious:
        assert ids_of(client.read_response()) == ["a"]


def test_a_client_that_leaves_ends_its_own_wait_only(harness):
    def answer(connection, message):
        gate.wait()
        serves("a")(connection, message)

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    first, second = harness.client(router), harness.client(router)
    first.send(request("GET", "/v1/models"))
    gate.wait_for_someone()
    second.send(request("GET", "/v1/models"))
    second.wait_until_read()
    first.close()
    eventually(lambda: "vllm_router_client_connections 1\n" in router.server.metrics_text())
    gate.open()
    assert ids_of(second.read_response()) == ["a"]
    assert asked_for(worker) == 1


def test_a_change_of_the_fleet_shows_at_once(harness):
    first, second = harness.worker(serves("a")), harness.worker(serves("b"))
    router = harness.router(first)
    client = harness.client(router)
    assert ids_of(client.ask("GET", "/v1/models")) == ["a"]
    router.core.add_worker(second.url)
    assert ids_of(client.ask("GET", "/v1/models")) == ["a", "b"]
    router.core.remove_worker(first.url)
    assert ids_of(client.ask("GET", "/v1/models")) == ["b"]


def test_a_stop_does_not_wait_for_a_refresh(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, shutdown_grace_period_secs=0.1)
    client = harness.client(router)
    client.send(request("GET", "/v1/models"))
    worker.wait_for_requests(1)
    router.shutdown()
    assert error_of(client.read_response())["code"] == "shutting_down"
    router.must_end()


def test_two_routers_that_lead_to_each_other_answer_what_they_know(harness):
    """Each waits for the other's list while that waits for its own: not for as long as a worker may take."""
    first = harness.router(harness.worker(serves("a")), health_check_timeout_secs=100)
    second = harness.router(f"http://127.0.0.1:{first.port}", health_check_timeout_secs=100)
    first.core.add_worker(f"http://127.0.0.1:{second.port}")
    assert ids_of(harness.client(first).ask("GET", "/v1/models")) == ["a"]
    eventually(lambda: harness.client(second).ask("GET", "/v1/models").status == 200)
    assert ids_of(harness.client(second).ask("GET", "/v1/models")) == ["a"]


def test_a_via_that_a_client_invents_changes_no_other_clients_list(harness):
    first = harness.router(harness.worker(serves("a")))
    second = harness.router(f"http://127.0.0.1:{first.port}")
    harness.client(second).ask(
        "GET", "/v1/models", ("Via", ", ".join(["1.1 vllm-router-0123456789abcdef"] * 10))
    )
    assert ids_of(harness.client(second).ask("GET", "/v1/models")) == ["a"]


# ---- the rate limit


def statuses(client, path, *fields):
    return {client.ask("GET", path, *fields).status for _ in range(20)}


@pytest.mark.parametrize("path", ["/v1/models", "/get_loads", "/workers", "/admin/index/stats"])
def test_own_endpoints_count_in_the_rate_limit(harness, path):
    router = harness.router(harness.worker(serves("a")), **LIMITED)
    client = harness.client(router)
    assert statuses(client, path) == {200, 429}
    refused = client.ask("GET", "/v1/completions")
    assert (refused.status, error_of(refused)["code"]) == (429, "rate_limited")


@pytest.mark.parametrize("path", ["/health", "/liveness", "/readiness"])
def test_probes_do_not(harness, path):
    client = harness.client(harness.router(harness.worker(), **LIMITED))
    assert statuses(client, path) == {200}


def test_an_operator_with_a_key_or_a_port_is_not_limited(harness, tmp_path):
    keys = tmp_path / "admins"
    keys.write_text("sk-admin")
    client = harness.client(harness.router(admin_api_key_file=str(keys), **LIMITED))
    assert statuses(client, "/workers", ("Authorization", "Bearer sk-admin")) == {200}
    router = harness.router(admin_port=0, **LIMITED)
    assert statuses(harness.client_at(router.server.admin_port), "/workers") == {200}
