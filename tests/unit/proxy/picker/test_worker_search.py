"""cpp/proxy/picker/worker_search.h: the worker by the model, the subset, breakers and back-offs."""

import json

import pytest

from tests.fakes.data_plane import chat, head, post, response_head
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.wire import response

BREAKERS = {"disable_circuit_breaker": False, "cb_failure_threshold": 2, "cb_timeout_duration_secs": 3600}


def answered(plane, subset, status):
    """Picks one of `subset`, which responds with this status. Returns the worker."""
    stream = plane.stream()
    stream.send(head(subset=subset))
    chosen = stream.choice()
    stream.send(response_head(status, end=True))
    stream.close()
    return chosen


def test_one_whose_breaker_is_open_is_passed_over_and_taken_if_it_is_alone(harness, data_plane):
    workers = [harness.worker() for _ in range(3)]
    router = harness.router(*workers, epp_port=0, **BREAKERS)
    plane = data_plane(router)
    first, second, third = (worker.authority for worker in workers)
    for _ in range(6):  # the fleet is well, but for one
        assert answered(plane, [second], 200) == second
        assert answered(plane, [third], 200) == third
        assert answered(plane, [first], 500) == first
    assert {answered(plane, [first, second], 200) for _ in range(6)} == {second}
    assert answered(plane, [first], 500) == first


@pytest.mark.parametrize("policy", ["round_robin", "least_load", "consistent_hash", "cache_aware"])
def test_each_policy_chooses_within_the_subset(harness, data_plane, policy):
    workers = [harness.worker() for _ in range(5)]
    plane = data_plane(harness.router(*workers, policy=policy, epp_port=0))
    subset = [worker.authority for worker in workers[1:3]]
    assert {plane.pick(head(subset=subset)) for _ in range(10)} <= set(subset)


def test_where_all_are_full_the_next_one_waits(harness, data_plane):
    workers = [harness.worker() for _ in range(2)]
    router = harness.router(*workers, epp_port=0, routing={"max_worker_requests": 1}, queue_size=5)
    plane = data_plane(router)
    subset = [workers[0].authority]
    first, second = plane.stream(), plane.stream()
    first.send(head(subset=subset))
    assert first.choice() == subset[0]
    second.send(head(subset=subset))
    first.send(response_head(end=True))
    assert second.choice() == subset[0]
    first.close()
    second.close()


@pytest.mark.parametrize("as_text", [False, True], ids=("list", "text"))
def test_a_subset_restricts_the_choice(harness, data_plane, as_text):
    workers = [harness.worker() for _ in range(4)]
    router = harness.router(*workers, epp_port=0)
    plane = data_plane(router)
    names = [workers[1].authority, workers[3].authority]
    subset = ",".join(names) if as_text else names
    assert {plane.pick(head(subset=subset)) for _ in range(8)} == set(names)


def test_an_address_alone_stands_for_all_its_ports(harness, data_plane):
    workers = [harness.worker() for _ in range(3)]
    plane = data_plane(harness.router(*workers, epp_port=0))
    picked = {plane.pick(head(subset=["127.0.0.1"])) for _ in range(6)}
    assert picked == {worker.authority for worker in workers}


def test_a_model_decides_the_workers(harness, data_plane):
    workers = [ModelWorker(harness, "a"), ModelWorker(harness, "b")]
    router = harness.router(*workers, epp_port=0, model_refresh_secs=3600)
    wait_until_known(router, 2)
    plane = data_plane(router)
    for name, served in zip("ab", workers, strict=True):
        picked = {plane.pick(*post(chat("x", model=name))) for _ in range(3)}
        assert picked == {served.worker.authority}
    stream = plane.stream()
    stream.send(*post(chat("x", model="c")))
    status, _, text = stream.rejection()
    assert (status, json.loads(text)["error"]["code"]) == (404, "model_not_found")
    stream.close()


def test_one_in_back_off_is_passed_over(harness, data_plane):
    """It said Retry-After to a request of the proxy."""
    workers = [
        harness.worker(lambda wire, _: wire.send(response(503, b"", ("Retry-After", "3600")))),
        harness.worker(),
        harness.worker(),
    ]
    router = harness.router(*workers, policy="round_robin", epp_port=0, disable_circuit_breaker=False)
    plane = data_plane(router)
    client = harness.client(router)
    while not workers[0].posts:
        client.ask("POST", "/v1/completions", body=b"{}")
    subset = [worker.authority for worker in workers[:2]]
    assert {plane.pick(head(subset=subset)) for _ in range(6)} == {workers[1].authority}
    assert plane.pick(head(subset=subset[:1])) == workers[0].authority


# ---- endpoints for further attempts


def endpoints_of(plane, *messages):
    stream = plane.stream()
    stream.send(*messages)
    endpoints = stream.choices()
    stream.send(response_head(end=True))
    stream.close()
    return endpoints


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash", "cache_aware", "least_load"])
def test_the_list_has_the_choices_that_follow(harness, data_plane, policy):
    """The second is chosen where the first is not in the subset, and nothing is reserved there."""
    workers = [harness.worker() for _ in range(4)]
    routing = {"seed": 7}
    with_list = harness.router(*workers, policy=policy, routing=routing, epp_port=0, epp_fallbacks=2)
    plane = data_plane(with_list)
    fields = {"x-session-id": "a"}
    endpoints = endpoints_of(plane, *post(chat("hello"), fields=fields))
    assert len(set(endpoints)) == 3
    assert set(endpoints) <= {worker.authority for worker in workers}
    with_list.wait_for_load(0)
    if policy == "consistent_hash":
        others = [worker.authority for worker in workers if worker.authority != endpoints[0]]
        again = endpoints_of(plane, *post(chat("hello"), fields=fields, subset=others))
        assert again[0] == endpoints[1]


def test_a_list_changes_no_choice(harness, data_plane):
    workers = [harness.worker() for _ in range(4)]
    planes = [
        data_plane(harness.router(*workers, policy="cache_aware", routing={"seed": 3}, epp_port=0, **more))
        for more in ({}, {"epp_fallbacks": 3})
    ]
    for number in range(40):
        messages = post(chat(f"conversation {number % 7} " * 50))
        chosen, listed = (endpoints_of(plane, *messages) for plane in planes)
        assert chosen == listed[:1]


def test_a_list_is_within_the_subset_and_without_workers_that_are_broken(harness, data_plane):
    workers = [harness.worker() for _ in range(4)]
    router = harness.router(*workers, epp_port=0, epp_fallbacks=3)
    plane = data_plane(router)
    router.core.set_healthy(workers[0].url, False)
    subset = [worker.authority for worker in workers[:3]]
    assert set(endpoints_of(plane, head(subset=subset))) == set(subset[1:])


def test_ranks_of_an_engine_are_one_endpoint(harness, data_plane):
    worker, other = harness.worker(), harness.worker()
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", other.url, epp_port=0, epp_fallbacks=5)
    assert sorted(endpoints_of(data_plane(router), head())) == sorted([worker.authority, other.authority])
