"""cpp/proxy/control/model_service.h: when workers are polled for their models, and what that changes."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.models import ModelWorker, listed, wait_until_known
from tests.fakes.wire import eventually, wait_until_logged
from vllm_router.discovery import WorkerSpec

QUICK = {"model_refresh_secs": 0.02}


def test_each_host_is_polled_at_once_and_again_and_its_ranks_together(harness):
    worker = ModelWorker(harness, "a")
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", **QUICK, api_key="key")
    wait_until_known(router, 1)
    eventually(lambda: worker.lists > 5)
    assert {message.get("authorization") for message in worker.worker.requests} == {"Bearer key"}


def test_zero_polls_nothing(harness):
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, model_refresh_secs=0)
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    assert (worker.lists, listed(router)) == (0, 0)


def test_a_host_that_fails_is_polled_again_soon(harness):
    worker = ModelWorker(harness, "a")
    worker.status = 503
    router = harness.router(worker, model_refresh_secs=3600)
    eventually(lambda: worker.lists == 1)
    worker.status = 200
    wait_until_known(router, 1)


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'{"data": 1}', b"x" * (1 << 20) + b"y"])
def test_what_is_no_list_changes_nothing_and_is_said_once(harness, capfd, raw):
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, **QUICK)
    wait_until_known(router, 1)
    worker.raw = raw
    wait_until_logged(capfd, f"models: worker {worker.url} ")
    lists = worker.lists
    eventually(lambda: worker.lists > lists + 3)
    assert listed(router) == 1
    worker.raw = None
    worker.cards["b"] = None
    wait_until_known(router, 2)


def test_an_empty_list_is_no_model_and_is_logged(harness, capfd):
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, ModelWorker(harness, "b"), **QUICK)
    wait_until_known(router, 2)
    worker.cards.clear()
    wait_until_known(router, 1)
    wait_until_logged(capfd, "lists no models")


def test_names_beyond_the_limits_are_left_out_with_a_warning(harness, capfd):
    worker = ModelWorker(harness, *(f"m{n}" for n in range(1030)))
    router = harness.router(worker, **QUICK)
    wait_until_known(router, 1024)
    wait_until_logged(capfd, "lists 1030 models, of which 6 are not kept")


def test_a_joining_worker_that_never_lists_its_models_joins_all_the_same(harness):
    router = harness.router(**QUICK, health_check_interval_secs=0.02)
    worker = ModelWorker(harness, "a")
    worker.status = 500
    router.core._reconcile("file", [WorkerSpec(worker.url)], True, [])
    eventually(lambda: len(router.core.workers) == 1)
    assert worker.lists >= 3


def test_another_pod_on_the_same_address_is_asked_before_it_joins(harness):
    """What the former one listed does not count."""
    router = harness.router(model_refresh_secs=3600, health_check_interval_secs=0.02)
    worker = ModelWorker(harness, "a")
    router.core._reconcile("file", [WorkerSpec(worker.url, incarnation="1")], True, [])
    wait_until_known(router, 1)
    worker.cards = {"b": None, "c": None}
    router.core._reconcile("file", [WorkerSpec(worker.url, incarnation="2")], True, [])
    wait_until_known(router, 2)


def test_a_server_ends_while_a_worker_is_polled(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, model_refresh_secs=1, health_check_timeout_secs=100)
    worker.wait_for_requests(1)
    router.shutdown()
    router.must_end()


KEY = ("Authorization", "Bearer k1")
OTHER_KEY = ("Authorization", "Bearer k2")


def keyed(harness, *models, keys=("k1",)):
    worker = ModelWorker(harness, *models)
    worker.keys = set(keys)
    return worker


def shown(client, *fields, target="/v1/models"):
    """The status, and the names in the list."""
    answer = client.ask("GET", target, *fields)
    return answer.status, [card["id"] for card in json.loads(answer.body).get("data", [])]


def served_by(client, model, *fields):
    body = json.dumps({"model": model, "prompt": "p"}).encode()
    answer = client.ask("POST", "/v1/completions", *fields, body=body)
    return json.loads(answer.body)["by"] if answer.status == 200 else answer.status


@pytest.mark.parametrize("refresh_secs", [0, 0.02, 3600])
def test_a_client_gets_the_models_that_its_key_opens_and_no_other_client_does(harness, refresh_secs):
    """Row 17: engines with keys of their own behind a router without --api-key."""
    a, b, shared = keyed(harness, "a"), keyed(harness, "b", keys=("k2",)), ModelWorker(harness, "open")
    router = harness.router(a, b, shared, model_refresh_secs=refresh_secs)
    client = harness.client(router)
    eventually(lambda: shown(client, KEY) == (200, ["a", "open"]))  # it has asked all of them once
    eventually(lambda: shown(client, OTHER_KEY) == (200, ["b", "open"]))
    for _ in range(3):
        assert shown(client, KEY) == (200, ["a", "open"])
        assert shown(client, OTHER_KEY) == (200, ["b", "open"])
        assert shown(client, ("Authorization", "Bearer wrong")) == (200, ["open"])
        assert shown(client) == (200, ["open"]), "what was learnt with a key is for those who have it"
        assert shown(client, target="/v1/models?refresh=1") == (200, ["open"])
    for fields, status in (((KEY,), 200), ((OTHER_KEY,), 404), ((), 404)):
        assert client.ask("GET", "/v1/models/a", *fields).status == status
    credentials = [
        (worker, message.get("authorization"))
        for worker in (a, b, shared)
        for message in worker.worker.requests
        if message.target == "/v1/models"
    ]
    assert {key for worker, key in credentials if worker is shared} == {None}, "an open one needs none"


def test_without_a_key_that_any_engine_takes_the_client_is_told_so(harness):
    """Row 17: it was 503 `no_workers`."""
    router = harness.router(keyed(harness, "a"), model_refresh_secs=3600)
    client = harness.client(router)
    answer = client.ask("GET", "/v1/models")
    assert (answer.status, error_of(answer)["code"]) == (401, "invalid_api_key")
    assert shown(client, ("x-api-key", "k1"))[0] == 401  # this engine reads Authorization only
    assert client.ask("GET", "/v1/models/a").status == 401
    assert shown(client, KEY) == (200, ["a"])


def test_requests_go_where_their_model_is_once_a_client_was_shown_the_lists(harness):
    """Row 17: two models behind one key were not told apart."""
    a, b = keyed(harness, "a"), keyed(harness, "b")
    router = harness.router(a, b, model_refresh_secs=3600, policy="round_robin")
    client = harness.client(router)
    eventually(lambda: shown(client, KEY) == (200, ["a", "b"]))
    wait_until_known(router, 2)
    for _ in range(4):
        assert [served_by(client, name, KEY) for name in ("a", "b")] == [a.url, b.url]
    assert (a.wrong, b.wrong) == ([], [])


def test_one_clients_list_hides_no_model_from_another(harness):
    """Row 17: a key that opens one engine only, and an engine that lists to each key what is that key's."""
    a, b = keyed(harness, "a"), keyed(harness, "b", keys=("k2",))
    router = harness.router(a, b, model_refresh_secs=3600, policy="round_robin")
    client = harness.client(router)
    eventually(lambda: shown(client, KEY) == (200, ["a"]))
    wait_until_known(router, 1)
    assert b.url in {served_by(client, "b", OTHER_KEY) for _ in range(4)}, "b may serve anything"
    a.keys.add("k3")
    a.cards = {"secret": None}  # to this key
    assert shown(client, ("Authorization", "Bearer k3")) == (200, ["secret"])
    wait_until_known(router, 2)
    a.cards = {"a": None}
    assert a.url in {served_by(client, "a", KEY) for _ in range(4)}


def test_an_engine_that_has_another_model_now_may_serve_anything(harness):
    """Row 17: the router cannot ask it, so what was learnt ends with the first 404."""
    a = keyed(harness, "a")
    other = keyed(harness, "b")
    router = harness.router(a, other, model_refresh_secs=0.02)
    client = harness.client(router)
    eventually(lambda: shown(client, KEY) == (200, ["a", "b"]))
    wait_until_known(router, 2)
    a.cards = {"c": None}
    assert served_by(client, "a", KEY) == 404
    eventually(lambda: a.url in {served_by(client, "c", KEY) for _ in range(2)})


def test_a_key_that_the_engine_does_not_take_is_named(harness, capfd):
    worker = keyed(harness, "a")
    harness.router(worker, **QUICK, api_key="wrong")
    said = f"models: worker {worker.url} returned 401 to GET /v1/models: --api-key is not the engine's"
    wait_until_logged(capfd, said)


def test_an_engine_with_a_key_is_named_where_the_router_has_none(harness, capfd):
    """Row 38: with what the router does until a client has shown it the list."""
    worker = keyed(harness, "a")
    harness.router(worker, **QUICK)
    said = (
        f"models: worker {worker.url} returned 401 to GET /v1/models: the engine wants a key; set --api-key"
    )
    wait_until_logged(capfd, said)


def test_the_routers_own_key_is_not_replaced_by_a_clients(harness):
    worker = keyed(harness, "a", keys=("router",))
    router = harness.router(worker, model_refresh_secs=0, api_key="router")
    assert shown(harness.client(router), KEY) == (200, ["a"])
    assert {m.get("authorization") for m in worker.worker.requests} == {"Bearer router"}


@pytest.mark.parametrize("whose", ["client", "admin"])
def test_a_key_that_was_meant_for_the_router_reaches_no_worker(harness, tmp_path, whose):
    """Row 17: a worker that is taken over could collect it by refusing the router."""
    keys = tmp_path / "keys"
    keys.write_text("k1")
    worker = keyed(harness, "a")
    router = harness.router(worker, model_refresh_secs=0, **{f"{whose}_api_key_file": str(keys)})
    assert shown(harness.client(router), KEY)[0] == 401
    assert {m.get("authorization") for m in worker.worker.requests} == {None}


def test_neither_an_error_nor_the_memory_names_what_was_learnt_with_a_key(harness):
    """Row 17: for a client without one, also after the engine has left."""
    a, b, shared = keyed(harness, "a"), keyed(harness, "b"), ModelWorker(harness, "open", "free")
    router = harness.router(a, b, shared, model_refresh_secs=0.02)
    client = harness.client(router)
    eventually(lambda: shown(client, KEY) == (200, ["a", "b", "open", "free"]))
    wait_until_known(router, 4)
    for body, code in (({"prompt": "p"}, "model_required"), ({"model": "x"}, "model_not_found")):
        answer = client.ask("POST", "/v1/completions", body=json.dumps(body).encode())
        assert error_of(answer)["code"] == code
        assert "Served" not in error_of(answer)["message"]
    router.core.remove_worker(a.url)
    assert shown(client) == (200, ["open", "free"])


def test_aliases_are_in_a_clients_own_list(harness):
    router = harness.router(keyed(harness, "a"), model_refresh_secs=3600, model_alias=["fast=a"])
    client = harness.client(router)
    eventually(lambda: shown(client, KEY) == (200, ["a", "fast"]))
    statuses = [client.ask("GET", f"/v1/models/{name}", KEY).status for name in ("a", "fast", "b")]
    assert statuses == [200, 200, 404]
