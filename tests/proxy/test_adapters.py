"""LoRA adapters: where requests for them go, and how they are loaded and unloaded through the router."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.models import ModelWorker, wait_until_all_listed, wait_until_known
from tests.fakes.wire import eventually
from tests.proxy.test_models import KNOWN, by, post


def call(client, verb, **body):
    return client.ask("POST", f"/v1/{verb}_lora_adapter", body=json.dumps(body).encode())


def rows(answer):
    return {row["worker"]: row["status"] for row in json.loads(answer.body)["workers"]}


def fleet(harness):
    a1, a2, b = ModelWorker(harness, "a"), ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(a1, a2, b, **KNOWN)
    wait_until_all_listed(router, a1, a2, b)
    return a1, a2, b, router


def test_an_adapter_loaded_on_some_workers_is_served_by_these(harness):
    workers = [ModelWorker(harness, "a", adapters={"sql": "a"} if n < 3 else None) for n in range(8)]
    router = harness.router(*workers, **KNOWN)
    wait_until_all_listed(router, *workers)
    client = harness.client(router)
    for _ in range(12):
        post(client, "sql")
        post(client, "a")
    assert [worker.wrong for worker in workers] == [[]] * 8
    assert [worker.served.count("sql") for worker in workers] == [4, 4, 4, 0, 0, 0, 0, 0]


def test_loading_goes_to_all_workers_of_the_parent_and_is_known_at_once(harness):
    a1, a2, b, router = fleet(harness)
    client = harness.client(router)
    answer = call(client, "load", lora_name="sql", lora_path="/sql", base_model_name="a")
    assert (answer.status, rows(answer)) == (200, {a1.url: 200, a2.url: 200})
    assert "sql" not in b.cards
    eventually(lambda: post(client, "sql").status == 200)
    assert by(post(client, "sql")) in (a1.url, a2.url)
    answer = call(client, "unload", lora_name="sql")
    assert (answer.status, rows(answer)) == (200, {a1.url: 200, a2.url: 200})
    eventually(lambda: post(client, "sql").status == 503)


def test_one_that_does_not_is_a_row_of_207(harness):
    a1, a2, _b, router = fleet(harness)
    a2.worker.stop()
    answer = call(harness.client(router), "load", lora_name="sql", lora_path="/sql", base_model_name="a")
    assert (answer.status, rows(answer)) == (207, {a1.url: 200, a2.url: 0})


@pytest.mark.parametrize(
    ("base", "status", "code"), [(None, 400, "model_required"), ("x", 404, "model_not_found")]
)
def test_the_parent_must_be_named_where_there_are_several(harness, base, status, code):
    a1, _a2, b, router = fleet(harness)
    named = {"base_model_name": base} if base else {}
    answer = call(harness.client(router), "load", lora_name="sql", lora_path="/sql", **named)
    assert (answer.status, error_of(answer)["code"]) == (status, code)
    assert "sql" not in {**a1.cards, **b.cards}


def test_in_a_fleet_of_one_model_it_goes_to_all(harness):
    workers = [ModelWorker(harness, "a") for _ in range(3)]
    router = harness.router(*workers, **KNOWN)
    wait_until_all_listed(router, *workers)
    client = harness.client(router)
    assert call(client, "load", lora_name="sql", lora_path="/sql").status == 200
    assert all("sql" in worker.cards for worker in workers)
    wait_until_known(router, 2)


def test_it_takes_the_admins_key(harness, tmp_path):
    keys = tmp_path / "admins"
    keys.write_text("sk-admin")
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, **KNOWN, admin_api_key_file=str(keys))
    wait_until_known(router, 1)
    assert call(harness.client(router), "load", lora_name="sql", lora_path="/sql").status == 401
    assert "sql" not in worker.cards
