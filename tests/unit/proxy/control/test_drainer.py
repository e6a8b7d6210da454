"""cpp/proxy/control/drainer.h: workers that leave the fleet without cutting anybody short."""

import json

import pytest

from tests.fakes.harness import Streaming, error_of
from tests.fakes.wire import eventually, request


def drain(client, url, method="POST", **members):
    return client.ask(method, "/admin/drain", body=json.dumps({"url": url, **members}).encode())


def status(client):
    return json.loads(client.ask("GET", "/admin/drain/status").body)["workers"]


def states(client):
    return {row["url"]: row["state"] for row in status(client)}


def test_a_worker_that_drains_finishes_what_it_has_and_is_removed(harness):
    leaving, staying = Streaming(harness), harness.worker()
    router = harness.router(leaving.worker, staying, policy="round_robin")
    streaming, admin = harness.client(router), harness.client(router)
    streaming.send(request("POST", "/v1/completions", body=b"{}"))
    streaming.read_head()
    answer = drain(admin, leaving.url)
    assert answer.status == 202
    assert json.loads(answer.body) == {"url": leaving.url, "draining": True, "timeout_secs": 300.0}
    for _ in range(5):
        assert admin.ask("GET", "/x").status == 200  # by the other one
    (row,) = status(admin)
    assert (row["url"], row["state"], row["open_requests"]) == (leaving.url, "draining", 1)
    assert row["timeout_secs"] == 300.0
    assert row["seconds"] >= 0
    leaving.gate.open()
    assert streaming.read_to_last_chunk().endswith(b"data: [DONE]\n\n")
    eventually(lambda: states(admin) == {leaving.url: "drained"})
    assert [worker.url for worker in router.core.workers] == [staying.url]
    streaming.must_be_open()
    assert len(leaving.worker.requests) == 1


def test_an_idle_worker_is_gone_at_once_and_may_come_back(harness):
    leaving, staying = harness.worker(), harness.worker()
    router = harness.router(leaving, staying)
    admin = harness.client(router)
    assert drain(admin, leaving.url).status == 202
    eventually(lambda: states(admin) == {leaving.url: "drained"})
    router.core.add_worker(leaving.url)
    assert status(admin) == []  # that was another worker
    assert sum(worker.draining for worker in router.core.workers) == 0
    assert drain(admin, leaving.url + "/").status == 202  # however it is spelled
    eventually(lambda: [row["state"] for row in status(admin)] == ["drained"])


def test_what_outlasts_the_timeout_is_cut(harness):
    leaving, staying = Streaming(harness), harness.worker()
    router = harness.router(leaving.worker, staying, policy="round_robin")
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    assert drain(admin, leaving.url, timeout_secs=0.1).status == 202
    eventually(lambda: states(admin) == {leaving.url: "cut"})
    assert b"[DONE]" not in client.read_to_end()
    eventually(lambda: [worker.url for worker in router.core.workers] == [staying.url])
    router.must_rest()
    admin.must_be_open()


def test_a_request_that_is_cut_before_its_answer_is_told_so(harness):
    worker = harness.worker(lambda _connection, _message: gate.wait())
    gate = worker.gate()
    router = harness.router(worker)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    router.wait_for_load(1)
    drain(admin, worker.url, timeout_secs=0)
    answer = client.read_response()
    assert answer.status == 503
    assert error_of(answer)["code"] == "worker_drained"
    gate.open()


def test_a_drain_can_be_taken_back(harness):
    worker = Streaming(harness)
    router = harness.router(worker.worker)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    drain(admin, worker.url)
    assert admin.ask("GET", "/x").status == 503
    answer = drain(admin, worker.url, "DELETE")
    assert (answer.status, json.loads(answer.body)) == (200, {"url": worker.url, "draining": False})
    assert status(admin) == []
    assert admin.ask("GET", "/x").status == 200
    worker.gate.open()
    client.read_to_last_chunk()
    assert [one.url for one in router.core.workers] == [worker.url]


def test_a_worker_that_somebody_removes_meanwhile(harness):
    worker = Streaming(harness)
    router = harness.router(worker.worker)
    client, admin = harness.client(router), harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    drain(admin, worker.url)
    router.core.remove_worker(worker.url)
    eventually(lambda: states(admin) == {worker.url: "removed"})
    worker.gate.open()
    assert client.read_to_last_chunk().endswith(b"data: [DONE]\n\n")


def test_ranks_drain_together_or_one_by_one(harness):
    worker = harness.worker()
    router = harness.router(*(f"{worker.url}@{rank}" for rank in range(3)))
    admin = harness.client(router)
    drain(admin, f"{worker.url}@1")
    eventually(lambda: states(admin) == {f"{worker.url}@1": "drained"})
    drain(admin, worker.url)
    eventually(lambda: set(states(admin).values()) == {"drained"} and len(status(admin)) == 3)
    assert router.core.workers == []


def test_the_status_of_one_worker_is_about_the_drain_that_was_begun_last(harness):
    """Row 37: an earlier drain's row ended a script's wait while the worker still had requests."""
    worker, other = Streaming(harness), harness.worker()
    router = harness.router(worker.worker, other, policy="round_robin")
    client, admin = harness.client(router), harness.client(router)
    of_worker = f"/admin/drain/status?url={worker.url}"
    assert admin.ask("GET", of_worker).status == 404
    drain(admin, worker.url)
    drain(admin, other.url)
    eventually(lambda: set(states(admin).values()) == {"drained"} and len(status(admin)) == 2)
    router.core.add_worker(worker.url)
    answer = admin.ask("GET", of_worker)
    assert (answer.status, "does not drain" in error_of(answer)["message"]) == (404, True)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    drain(admin, worker.url)
    found = json.loads(admin.ask("GET", of_worker).body)
    assert (found["ended"], [row["state"] for row in found["workers"]]) == (False, ["draining"])
    worker.gate.open()
    client.read_to_last_chunk()
    eventually(lambda: json.loads(admin.ask("GET", of_worker).body)["ended"])


def test_a_row_does_not_come_back_when_its_worker_leaves_another_way(harness):
    """Row 37: what was said of the worker that drained does not hold for the next one of that URL."""
    worker, other = harness.worker(), harness.worker()
    router = harness.router(worker, other)
    admin = harness.client(router)
    drain(admin, worker.url)
    eventually(lambda: states(admin) == {worker.url: "drained"})
    assert admin.ask("POST", f"/add_worker?url={worker.url}", body=b"").status == 200
    assert admin.ask("POST", f"/remove_worker?url={worker.url}", body=b"").status == 200
    assert status(admin) == []


def test_a_call_can_wait_for_the_end_of_the_drain(harness):
    """Row 37: `wait` holds the response back until the last request has ended, or for that long."""
    worker = Streaming(harness)
    router = harness.router(worker.worker)
    client, admin, late = (harness.client(router) for _ in range(3))
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    answer = drain(admin, worker.url, wait=0.05)
    found = json.loads(answer.body)
    assert (answer.status, found["draining"], found["ended"]) == (202, True, False)
    admin.send(request("POST", f"/admin/drain?url={worker.url}&wait=3600", body=b""))
    eventually(lambda: [row["seconds"] < 1 for row in status(late)] == [True])
    worker.gate.open()
    answer = admin.read_response()
    found = json.loads(answer.body)
    assert (answer.status, found["draining"], found["ended"]) == (200, False, True)
    assert [row["state"] for row in found["workers"]] == ["drained"]
    client.read_to_last_chunk()


def test_a_wait_ends_in_an_error_when_the_drain_is_cancelled(harness):
    """Row 37: a script must not take that for the end of the worker's requests."""
    worker = Streaming(harness)
    router = harness.router(worker.worker)
    client, waiting, admin = (harness.client(router) for _ in range(3))
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    waiting.send(request("POST", f"/admin/drain?url={worker.url}&wait=3600", body=b""))
    eventually(lambda: states(admin) == {worker.url: "draining"})
    assert drain(admin, worker.url, "DELETE").status == 200
    answer = waiting.read_response()
    assert (answer.status, "serves again" in error_of(answer)["message"]) == (409, True)
    worker.gate.open()
    client.read_to_last_chunk()


def test_a_client_that_leaves_ends_its_wait_only(harness):
    worker = Streaming(harness)
    router = harness.router(worker.worker)
    client, waiting, admin = (harness.client(router) for _ in range(3))
    client.send(request("POST", "/v1/completions", body=b"{}"))
    client.read_head()
    waiting.send(request("POST", f"/admin/drain?url={worker.url}&wait=3600", body=b""))
    eventually(lambda: states(admin) == {worker.url: "draining"})
    waiting.close()
    assert states(admin) == {worker.url: "draining"}
    worker.gate.open()
    client.read_to_last_chunk()
    eventually(lambda: states(admin) == {worker.url: "drained"})


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "string member 'url'"),
        (b"[]", 400, "string member 'url'"),
        (b'{"url": 7}', 400, "string member 'url'"),
        (b'{"url": "http://nobody:1"}', 404, "no worker"),
        (b'{"url": "http://127.0.0.1:1", "timeout_secs": -1}', 400, "timeout_secs"),
        (b'{"url": "http://127.0.0.1:1", "timeout_secs": "1"}', 400, "timeout_secs"),
        (b'{"url": "http://127.0.0.1:1", "timeout_secs": 1e99}', 400, "timeout_secs"),
        (b'{"url": "http://127.0.0.1:1", "wait": 3601}', 400, "'wait' is 3601"),
        (b'{"url": "http://127.0.0.1:1", "wait": "1"}', 400, "wait"),
    ],
)
def test_what_cannot_be_drained(harness, body, status, words):
    client = harness.client(harness.router(harness.worker()))
    answer = client.ask("POST", "/admin/drain", body=body)
    assert answer.status == status
    assert words in error_of(answer)["message"]
    client.must_be_open()
