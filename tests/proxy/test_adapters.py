"""LoRA adapters: where requests for them go, and how they are loaded and unloaded through the router."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.models import ModelWorker, wait_until_all_listed, wait_until_known
from tests.fakes.wire import eventually, request
from tests.proxy.test_models import CHAT, KNOWN, by, post


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


def test_the_parent_may_be_named_by_an_alias(harness):
    a1, a2, b, _router = fleet(harness)
    router = harness.router(a1, a2, b, **KNOWN, model_alias=["main=a"])
    wait_until_all_listed(router, a1, a2, b)
    client = harness.client(router)
    answer = call(client, "load", lora_name="sql", lora_path="/sql", base_model_name="main")
    assert (answer.status, rows(answer)) == (200, {a1.url: 200, a2.url: 200})


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


# ---- adapters that engines load themselves


def spread(harness, policy="round_robin", routing=None, **options):
    """Four workers of `a` that can load `sql`, which the first two have, and one of `b`."""
    workers = [ModelWorker(harness, "a", adapters={"sql": "a"} if n < 2 else None) for n in range(4)]
    for worker in workers:
        worker.loadable["sql"] = "a"
    other = ModelWorker(harness, "b")
    options = {"lora_spread": True, **KNOWN, **options}
    router = harness.router(*workers, other, policy=policy, routing=routing, **options)
    wait_until_all_listed(router, *workers, other)
    return workers, other, router


@pytest.mark.parametrize("policy", ["round_robin", "least_load", "consistent_hash", "cache_aware", "auto"])
def test_a_worker_that_has_the_adapter_comes_first_and_another_one_loads_it_if_there_is_none(harness, policy):
    workers, other, router = spread(harness, policy)
    client = harness.client(router)
    urls = [worker.url for worker in workers]
    for n in range(8):
        assert by(post(client, "sql", user=f"u{n}")) in urls[:2]
    for url in urls[:2]:
        router.core.set_healthy(url, False)
    assert by(post(client, "sql")) in urls[2:]
    assert other.served == other.wrong == []
    assert [worker.wrong for worker in workers] == [[]] * 4


def test_without_spread_no_other_worker_gets_it(harness):
    workers, _other, router = spread(harness, lora_spread=False)
    for worker in workers[:2]:
        router.core.set_healthy(worker.url, False)
    assert post(harness.client(router), "sql").status == 503
    assert [worker.served for worker in workers] == [[]] * 4


@pytest.mark.parametrize(("tokens", "loads"), [(0, True), (1_000_000, False)])
def test_auto_weighs_a_load_against_the_queues_of_those_that_have_it(harness, tokens, loads):
    workers, _other, router = spread(harness, "auto", {"lora_load_tokens": tokens})
    gates = [worker.worker.gate() for worker in workers[:2]]

    def held(worker, gate):
        def answer(connection, message):
            if message.method == "POST":
                gate.wait()
            worker.answer(connection, message)

        return answer

    for worker, gate in zip(workers[:2], gates, strict=True):
        worker.worker.answer = held(worker, gate)
    clients = [harness.client(router) for _ in range(2)]
    for number, client in enumerate(clients, 1):
        client.send(request("POST", CHAT, body=b'{"model": "sql", "prompt": "' + b"x" * 9_000 + b'"}'))
        eventually(lambda number=number: sum(router.loads()) == number)
    assert sorted(router.loads()) == [0, 0, 0, 1, 1]
    third = harness.client(router)
    third.send(request("POST", CHAT, body=b'{"model": "sql", "prompt": "y"}'))
    if loads:
        assert by(third.read_response()) in [worker.url for worker in workers[2:]]
    eventually(lambda: sum(router.loads()) == (2 if loads else 3))
    for gate in gates:
        gate.open()
    for client in clients if loads else [*clients, third]:
        assert client.read_response().status == 200
    assert [worker.served.count("sql") for worker in workers[2:]].count(1) == loads


def test_retries_go_to_those_that_have_it_first(harness):
    workers, _other, router = spread(harness, disable_retries=False, retry_initial_backoff_ms=1)

    def broken(connection, message):
        if message.method == "POST":
            connection.reset()
        else:
            workers[0].answer(connection, message)

    workers[0].worker.answer = broken
    client = harness.client(router)
    for _ in range(4):
        assert by(post(client, "sql")) == workers[1].url


def test_an_adapter_that_no_worker_lists_any_more_is_loaded_again(harness):
    workers, other, router = spread(harness)
    for worker in workers:
        worker.cards.pop("sql", None)
    client = harness.client(router)
    client.ask("GET", "/v1/models?refresh=1")
    assert by(post(client, "sql")) in [worker.url for worker in workers]
    assert other.wrong == []
    assert error_of(post(client, "x"))["code"] == "model_not_found"


def test_in_a_fleet_of_one_model_its_adapters_decide(harness):
    """All workers may get it, so that only the preference tells them apart."""
    workers = [ModelWorker(harness, "a", adapters={"sql": "a"} if n == 2 else None) for n in range(4)]
    router = harness.router(*workers, lora_spread=True, **KNOWN)
    wait_until_all_listed(router, *workers)
    client = harness.client(router)
    for _ in range(6):
        assert by(post(client, "sql")) == workers[2].url
    assert len({by(post(client, "a")) for _ in range(8)}) == 4
