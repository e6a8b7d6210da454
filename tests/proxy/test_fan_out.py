"""Requests that concern every worker: its cache, its weights, its adapters, its profiler, its sleep.

mending row 19: /flush_cache reached one worker of three and answered 200, so that the others went on with
stale entries; such requests go to all workers now, and 200 means that all did it.
"""

import json
import threading

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, request, response

PATHS = [
    "/flush_cache",
    "/reset_prefix_cache",
    "/start_profile",
    "/stop_profile",
    "/sleep",
    "/wake_up",
    "/pause",
    "/resume",
    "/update_weights_from_disk",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
]
SUCCESS = b'{"success": true}'


def does(connection, _message):
    connection.send(response(200, SUCCESS))


def fails(connection, _message):
    connection.send(response(500, b'{"success": false}'))


def rows_of(answer):
    return {row["worker"]: row["status"] for row in json.loads(answer.body)["workers"]}


@pytest.mark.parametrize("path", PATHS)
def test_all_workers_get_it_as_it_came(harness, path):
    workers = [harness.worker(does) for _ in range(3)]
    router = harness.router(*workers)
    answer = harness.client(router).ask(
        "POST", f"{path}?level=1", ("Content-Type", "application/json"), ("X-Own", "y"), body=b'{"a": 1}'
    )
    assert answer.status == 200
    assert rows_of(answer) == {worker.url: 200 for worker in workers}
    assert json.loads(answer.body)["success"] is True
    for worker in workers:
        (message,) = worker.requests
        assert (message.method, message.target, message.body) == ("POST", f"{path}?level=1", b'{"a": 1}')
        assert (message.get("content-type"), message.get("x-own")) == ("application/json", "y")


def test_a_worker_that_does_not_do_it_shows(harness):
    good, bad, gone = harness.worker(does), harness.worker(fails), harness.refusing_port()
    answer = harness.client(harness.router(good, bad, gone)).ask("POST", "/flush_cache", body=b"")
    assert answer.status == 207
    assert rows_of(answer) == {good.url: 200, bad.url: 500, gone.url: 0}


def test_none_does_it(harness):
    bad = harness.worker(fails)
    answer = harness.client(harness.router(bad, harness.refusing_port())).ask("POST", "/sleep", body=b"")
    body = json.loads(answer.body)
    assert (answer.status, body["error"]["code"], rows_of(answer)[bad.url]) == (502, "fan_out_failed", 500)
    answer = harness.client(harness.router()).ask("POST", "/sleep", body=b"")
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")


def test_workers_that_are_unhealthy_or_drain_get_it_too(harness):
    workers = [harness.worker(does) for _ in range(3)]
    router = harness.router(*workers)
    router.core.set_healthy(workers[0].url, False)
    router.core.drain_worker(workers[1].url)
    assert rows_of(harness.client(router).ask("POST", "/flush_cache", body=b"")) == {
        worker.url: 200 for worker in workers
    }


def test_ranks_of_one_host_get_it_once_and_without_a_rank(harness):
    worker = harness.worker(does)
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1")
    assert harness.client(router).ask("POST", "/flush_cache", body=b"").status == 200
    (message,) = worker.requests
    assert message.get("x-data-parallel-rank") is None


def test_all_are_asked_at_once(harness):
    together = threading.Barrier(5)

    def answer(connection, message):
        together.wait(30)
        does(connection, message)

    router = harness.router(*(harness.worker(answer) for _ in range(5)))
    assert harness.client(router).ask("POST", "/flush_cache", body=b"").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/flush_cache/",
        "//flush_cache",
        "/v1//sleep",
        "/./flush_cache",
        "/x/../flush_cache",
        "/%2e%2e/flush_cache",
        "/..%2fflush_cache",
        "/flush_cache;x",
        "/flush_cache%3Fx",
        "/%6detrics",
        "/metrics/",
    ],
)
def test_other_spellings_reach_no_worker(harness, path):
    """They went to one worker, past the check of the admin's key, whatever that worker made of them."""
    worker = harness.worker(does)
    answer = harness.client(harness.router(worker)).ask("POST", path, body=b"")
    assert (answer.status, error_of(answer)["code"]) == (404, "not_found")
    assert worker.requests == []


def test_a_path_that_is_added_leaves_get_to_one_worker(harness):
    """Row 60: it was 405 from then on; `GET ` before the path sends it to all, too."""
    workers = [harness.worker(does) for _ in range(2)]
    router = harness.router(*workers, fan_out_path=["/own_rpc", "/hooks*", "GET /state"])
    client = harness.client(router)
    for method, path in (("GET", "/own_rpc"), ("HEAD", "/own_rpc"), ("GET", "/v1/hooks/reload")):
        assert client.ask(method, path).status == 200
    assert sum(len(worker.requests) for worker in workers) == 3
    assert client.ask("PUT", "/own_rpc", body=b"{}").status == 200
    assert client.ask("POST", "/state", body=b"{}").status == 200
    assert sum(len(worker.requests) for worker in workers) == 7
    for path in (
        "/state",
        "/flush_cache",
    ):  # those need an admin's key where pages of other sites could send them
        assert client.ask("GET", path).status == 405
    assert client.ask("GET", "/state/").status == 404


def test_get_goes_to_all_workers_for_an_admin_if_the_path_says_so(harness, tmp_path):
    """Row 60: clients' keys open neither that nor the other spelling of it."""
    admins = tmp_path / "admins"
    admins.write_text("sk-admin")
    workers = [harness.worker(does) for _ in range(2)]
    router = harness.router(*workers, fan_out_path=["GET /state"], admin_api_key_file=str(admins))
    client = harness.client(router)
    assert client.ask("GET", "/state").status == 401
    assert client.ask("GET", "/state", ("Authorization", "Bearer sk-admin")).status == 200
    assert [len(worker.requests) for worker in workers] == [1, 1]


def test_they_are_admin_endpoints(harness, tmp_path):
    """mending row 19: for keys and for pages of other sites."""
    admins = tmp_path / "admins"
    admins.write_text("sk-admin")
    worker = harness.worker(does)
    client = harness.client(harness.router(worker, admin_api_key_file=str(admins), api_key="workers"))
    evil = client.ask("POST", "/flush_cache", ("Origin", "https://evil.example"), body=b"")
    assert (evil.status, error_of(evil)["code"]) == (403, "cross_site_request")
    assert client.ask("POST", "/%66lush_cache", body=b"").status == 401
    assert worker.requests == []
    assert client.ask("POST", "/flush_cache", ("Authorization", "Bearer sk-admin"), body=b"").status == 200
    assert worker.requests[0].get("authorization") == "Bearer workers"


def test_the_admins_key_stays_here(harness, tmp_path):
    admins = tmp_path / "admins"
    admins.write_text("sk-admin")
    worker = harness.worker(does)
    client = harness.client(harness.router(worker, admin_api_key_file=str(admins)))
    assert client.ask("POST", "/flush_cache", ("x-api-key", "sk-admin"), body=b"").status == 200
    assert worker.requests[0].get("x-api-key") is None


def test_a_key_that_is_meant_for_the_workers_reaches_them(harness):
    worker = harness.worker(does)
    client = harness.client(harness.router(worker))
    assert client.ask("POST", "/flush_cache", ("Authorization", "Bearer engine"), body=b"").status == 200
    assert worker.requests[0].get("authorization") == "Bearer engine"


def test_an_admin_port_has_them_and_the_main_port_does_not(harness):
    worker = harness.worker(does)
    router = harness.router(worker, admin_port=0)
    assert harness.client(router).ask("POST", "/flush_cache", body=b"").status == 404
    admin = harness.client_at(router.server.admin_port)
    assert admin.ask("POST", "/flush_cache", body=b"").status == 200


def test_a_body_is_sent_whole_up_to_8_mib(harness):
    workers = [harness.worker(does) for _ in range(2)]
    router = harness.router(*workers)
    body = bytes(3_000_000)
    assert harness.client(router).ask("POST", "/update_weights_from_tensor", body=body).status == 200
    assert [worker.requests[0].body == body for worker in workers] == [True, True]
    client = harness.client(router)
    client.send(request("POST", "/update_weights", body=b"x")[:-1].replace(b": 1\r\n", b": 9000000\r\n"))
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (413, "body_too_large")


def test_a_client_that_leaves_ends_what_is_left(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/flush_cache", body=b""))
    worker.wait_for_requests(1)
    client.close()
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    eventually(lambda: "vllm_router_client_connections 0\n" in router.server.metrics_text())


def test_an_image_on_a_web_page_cannot_flush(harness, tmp_path):
    """mending row 8: a browser sends it with GET, and need not say whose page it is."""
    worker = harness.worker(does)
    client = harness.client(harness.router(worker))
    for path in PATHS:
        answer = client.ask("GET", path, ("Referer", "http://evil.example/"))
        assert (answer.status, answer.get("allow")) == (405, "POST, PUT, DELETE")
    assert not worker.requests
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    client = harness.client(harness.router(worker, admin_api_key_file=str(keys)))
    assert client.ask("GET", "/flush_cache", ("Authorization", "Bearer secret")).status == 200


def test_no_more_than_16_are_under_way(harness):
    """mending row 19: 1,000 at once at a worker that hangs took 2,022 descriptors."""

    def late(connection, _message):
        gate.wait()
        connection.send(response(200, SUCCESS))

    worker = harness.worker(late)
    gate = worker.gate()
    router = harness.router(worker)
    clients = [harness.client(router) for _ in range(16)]
    for client in clients:
        client.send(request("POST", "/flush_cache", body=b""))
    worker.wait_for_requests(16)
    surplus = harness.client(router)
    answer = surplus.ask("POST", "/flush_cache", body=b"")
    assert (answer.status, error_of(answer)["code"], answer.get("retry-after")) == (503, "fan_out_busy", "1")
    gate.open()
    assert {client.read_response().status for client in clients} == {200}
    assert surplus.ask("POST", "/flush_cache", body=b"").status == 200
    assert len(worker.requests) == 17


def test_the_log_names_those_that_did_not_do_it(harness, written_to):
    stderr = written_to(2)
    bad, good, gone = harness.worker(fails), harness.worker(does), harness.refusing_port()
    router = harness.router(bad, good, gone)
    harness.client(router).ask("POST", "/flush_cache", ("X-Request-ID", "the-one"), body=b"secret")
    eventually(lambda: "the-one" in stderr())
    (line,) = [line for line in stderr().splitlines() if "the-one" in line and "WARN" in line]
    assert "request the-one to /flush_cache failed at 2 of 3 workers: " in line
    assert f"{bad.url} (status 500)" in line
    assert f"{gone.url} (no response: " in line
    assert good.url not in line
    assert "secret" not in line


def test_a_worker_that_never_answers_costs_its_own_row(harness):
    silent = harness.worker(lambda connection, _: connection.ending())
    good = harness.worker(does)
    router = harness.router(silent, good, request_timeout_secs=0.3)
    answer = harness.client(router).ask("POST", "/flush_cache", body=b"")
    assert (answer.status, rows_of(answer)) == (207, {silent.url: 0, good.url: 200})


@pytest.mark.parametrize("policy", ["cache_aware", "auto", "vllm_cache_aware"])
def test_what_a_worker_was_thought_to_hold_is_forgotten(harness, policy):
    prompt = json.dumps({"prompt": "w " * 4000}).encode()

    router = harness.router(harness.worker(does), harness.worker(does), policy=policy)
    client = harness.client(router)
    for _ in range(2):
        client.ask("POST", "/v1/completions", body=prompt)

    def held():
        ticket = router.core.select(body=prompt)
        matched = ticket.matched
        ticket.finish()
        return matched

    assert held() > 0
    assert client.ask("POST", "/flush_cache", body=b"").status == 200
    assert held() == 0
