"""Router.select() and select_batch() where workers serve different models: the same pools as the server's."""

import json

import pytest

import vllm_router
from vllm_router import ModelNotFoundError, NoWorkersError, Router
from vllm_router.discovery import WorkerSpec

A1, A2, B = "http://a1:1", "http://a2:1", "http://b:1"


@pytest.fixture
def router():
    made = Router("round_robin")
    made.reconcile(
        "mine",
        [WorkerSpec(A1, models=["a"]), WorkerSpec(A2, models=["a", "sql"]), WorkerSpec(B, models=["b"])],
    )
    return made


def urls(router, **request):
    found = set()
    for _ in range(6):
        with router.select(**request) as ticket:
            found.add(ticket.worker_url)
    return found


@pytest.mark.parametrize(
    "request_of",
    [
        lambda model: {"model": model},
        lambda model: {"model": model, "prompt": "x"},
        lambda model: {"model": model.encode(), "messages": []},
        lambda model: {"body": {"prompt": "x", "model": model}},
        lambda model: {"body": f'{{"model": "b", "model ": 1, "model": "{model}"}}'},
        lambda model: {"body": json.dumps({"model": model}).encode()},
        lambda model: {"body": bytearray(json.dumps({"model": model}), "utf-8")},
    ],
)
@pytest.mark.parametrize(("model", "workers"), [("a", {A1, A2}), ("sql", {A2}), ("b", {B})])
def test_a_request_goes_to_the_workers_of_its_model(router, request_of, model, workers):
    assert urls(router, **request_of(model)) == workers
    assert all(worker.load == 0 for worker in router.workers)


@pytest.mark.parametrize(
    "policy", ["auto", "consistent_hash", "cache_aware", "sticky_least_loaded", "random"]
)
def test_under_every_policy(policy):
    router = Router(policy, seed=1)
    router.reconcile("mine", [WorkerSpec(url, models=[url[7]]) for url in (A1, A2, B)])
    for n in range(8):
        with router.select(prompt=f"prompt {n}", model="b", headers={"X-Session-ID": str(n)}) as ticket:
            assert ticket.worker_url == B


def test_a_batch(router):
    batch = router.select_batch(["x"] * 6, model="a")
    assert {batch.worker_urls[row] for row in batch.workers} == {A1, A2}
    with pytest.raises(ModelNotFoundError):
        router.select_batch(["x"], model="c")
    batch.finish()
    assert all(worker.load == 0 for worker in router.workers)


def test_exclude_among_and_alternatives_stay_in_the_pool(router):
    with router.select(model="a", exclude=[A1], alternatives=2) as ticket:
        assert (ticket.worker_url, ticket.alternatives()) == (A2, [])
    with router.select(model="a", among=[A1, B]) as ticket:
        assert ticket.worker_url == A1
    with pytest.raises(NoWorkersError, match="1 that do not serve the model and 2 excluded"):
        router.select(model="a", among=[B])
    explained = router.explain(model="a")
    assert {row.url: row.status for row in explained.workers} == {
        A1: "eligible",
        A2: "eligible",
        B: "other_model",
    }


def test_a_model_that_no_worker_has_listed(router):
    with pytest.raises(ModelNotFoundError) as raised:
        router.select(model="gpt\n5")
    assert str(raised.value) == (
        'the model "gpt\\x0a5" is served by no worker of the fleet; they serve "a", "sql", "b"'
    )
    assert isinstance(raised.value, vllm_router.RouterError)
    assert isinstance(raised.value, LookupError)


def test_a_model_whose_workers_have_left(router):
    router.reconcile("mine", [WorkerSpec(A1, models=["a"]), WorkerSpec(A2, models=["a"])], deleted=[B])
    with pytest.raises(NoWorkersError, match='no worker serves the model "b" now'):
        router.select(model="b")


def test_without_a_name_it_is_the_only_base_model_or_any_worker(router):
    assert urls(router) == {A1, A2, B}
    assert urls(router, body={"prompt": "x"}) == {A1, A2, B}
    assert urls(router, body=b"[]") == {A1, A2, B}
    one = Router("round_robin")
    one.reconcile("mine", [WorkerSpec(A1, models=["a"]), WorkerSpec(B, models=[])])
    assert urls(one) == {A1, B}, "of which one may serve anything"


def test_where_all_serve_the_same_names_decide_nothing():
    router = Router("round_robin")
    router.reconcile("mine", [WorkerSpec(url, models=["a"]) for url in (A1, B)])
    assert urls(router, model="x") == urls(router, body=b'{"model": 7}') == {A1, B}
