"""cpp/proxy/picker/picked_request.h: a request at a gateway gets the proxy's choice, and holds its load."""

import json
import random

import pytest

from tests.fakes.data_plane import (
    BUFFERED,
    BUFFERED_PARTIAL,
    DUPLEX,
    NONE,
    STREAMED,
    body,
    head,
    response_head,
)
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.wire import request

CHAT = "/v1/chat/completions"


def chat(text, **more):
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def post(data, *, mode=DUPLEX, path=CHAT, fields=(), subset=None):
    """The messages of a POST."""
    named = {"content-type": "application/json", "content-length": str(len(data)), **dict(fields)}
    return head(method="POST", path=path, fields=named, mode=mode, subset=subset), body(data)


# ---- the choice


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash", "cache_aware", "least_load", "random"])
def test_a_gateway_gets_the_choices_of_the_proxy(harness, data_plane, policy):
    """Conversations that grow, half of them with a session: the same requests at two routers alike."""
    workers = [harness.worker() for _ in range(4)]
    routing = {"seed": 7}
    proxy = harness.router(*workers, policy=policy, routing=routing)
    picker = harness.router(*workers, policy=policy, routing=routing, epp_port=0)
    client, plane = harness.client(proxy), data_plane(picker)
    generator = random.Random(1)
    texts = [f"conversation {number} " * 40 for number in range(12)]
    for _ in range(60):
        number = generator.randrange(len(texts))
        texts[number] += generator.choice(("and then", "why", "so it was")) * 20
        data = chat(texts[number], max_tokens=9)
        fields = {"x-session-id": str(number)} if number % 2 else {}
        before = [len(worker.posts) for worker in workers]
        client.send(request("POST", CHAT, *fields.items(), ("Content-Type", "application/json"), body=data))
        assert client.read_response().status == 200
        (chosen,) = [w for w, count in zip(workers, before, strict=True) if len(w.posts) > count]
        assert plane.pick(*post(data, fields=fields)) == chosen.authority


@pytest.mark.parametrize("mode", [BUFFERED, BUFFERED_PARTIAL, DUPLEX])
def test_the_choice_is_by_the_body_in_each_mode_that_has_one(harness, data_plane, mode):
    workers = [harness.worker() for _ in range(4)]
    router = harness.router(*workers, policy="cache_aware", epp_port=0)
    plane = data_plane(router)
    chosen = {}
    for round_ in range(3):
        for number in range(8):
            stream = plane.stream()
            data = chat(f"prompt {number} " * 100)
            beginning, rest = post(data, mode=mode)
            stream.send(beginning)
            if mode != DUPLEX:  # its body comes once the head has a response
                assert stream.receive().WhichOneof("response") == "request_headers"
            stream.send(rest)
            where = stream.choice()
            stream.send(response_head(end=True))
            stream.close()
            assert chosen.setdefault(number, where) == where, round_
    assert len(set(chosen.values())) > 1


@pytest.mark.parametrize("mode", [NONE, STREAMED])
def test_without_a_body_the_choice_is_by_the_head(harness, data_plane, mode):
    workers = [harness.worker() for _ in range(4)]
    router = harness.router(*workers, policy="consistent_hash", epp_port=0)
    plane = data_plane(router)
    chosen = set()
    for session in ("a", "b", "c", "d", "e", "f", "g", "h"):
        messages = [head(method="POST", fields={"x-session-id": session}, mode=mode)]
        (where,) = {plane.pick(*messages) for _ in range(3)}
        chosen.add(where)
    assert len(chosen) > 1


def test_a_head_is_enough_where_the_policy_reads_no_body(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0)
    stream = data_plane(router).stream()
    beginning, rest = post(chat("late"))
    stream.send(beginning)
    stream.choice()
    stream.send(rest)
    sent_back = stream.receive().request_body.response.body_mutation.streamed_response
    assert (sent_back.body, sent_back.end_of_stream) == (rest.request_body.body, True)
    stream.close()


def test_what_a_client_says_of_its_endpoint_is_overwritten(harness, data_plane):
    worker = harness.worker()
    plane = data_plane(harness.router(worker, epp_port=0))
    fields = {"x-gateway-destination-endpoint": "10.6.6.6:1"}
    stream = plane.stream()
    stream.send(head(fields=fields))
    (option,) = stream.receive().request_headers.response.header_mutation.set_headers
    assert (option.header.raw_value.decode(), option.append_action) == (worker.authority, 2)
    stream.close()


# ---- subsets


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


@pytest.mark.parametrize("subset", [["10.0.0.1:80"], [], ["no endpoint"]], ids=("other", "empty", "misfit"))
def test_a_subset_without_a_worker_is_rejected(harness, data_plane, subset):
    stream = data_plane(harness.router(harness.worker(), epp_port=0)).stream()
    stream.send(head(subset=subset))
    status, fields, text = stream.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (503, "rejected-no-endpoints")
    assert "endpoints that the gateway lists" in json.loads(text)["error"]["message"]
    stream.close()


# ---- rejections


def test_without_a_worker_a_request_is_rejected(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0)
    router.core.set_healthy(worker.url, False)
    stream = data_plane(router).stream()
    stream.send(head())
    status, fields, text = stream.rejection()
    assert (status, fields["retry-after"], fields["content-type"]) == (503, "1", "application/json")
    assert json.loads(text)["error"]["code"] == "no_workers"
    stream.close()


def test_the_rate_limit_counts_what_gateways_send(harness, data_plane):
    plane = data_plane(harness.router(harness.worker(), epp_port=0, rate_limit_tokens_per_second=1))
    plane.pick(head())
    stream = plane.stream()
    stream.send(head())
    status, fields, text = stream.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (429, "rejected-saturated")
    assert json.loads(text)["error"]["code"] == "rate_limited"
    stream.close()


def test_a_full_queue_rejects(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=0)
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    second.send(head())
    assert second.rejection()[0] == 429
    first.send(response_head(end=True))
    first.close()
    second.close()
    plane.pick(head())


def test_a_body_over_the_limit_is_rejected(harness, data_plane):
    plane = data_plane(
        harness.router(harness.worker(), policy="cache_aware", epp_port=0, max_payload_size=1000)
    )
    told, counted = plane.stream(), plane.stream()
    told.send(post(b"x" * 1001)[0])
    assert told.rejection()[0] == 413
    counted.send(head(method="POST"), body(b"x" * 600, end=False), body(b"x" * 600))
    assert counted.rejection()[0] == 413
    told.close()
    counted.close()


# ---- the queue


def test_a_request_waits_for_its_permit(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=5)
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    where = first.choice()
    second.send(head())
    first.send(response_head(end=True))
    assert second.choice() == where
    for stream in (first, second):
        stream.close()


def test_one_that_leaves_the_queue_takes_no_permit(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=5)
    plane = data_plane(router)
    first, left, last = plane.stream(), plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    left.send(head())
    last.send(head())
    left.cancel()
    first.send(response_head(end=True))
    first.close()
    last.choice()
    last.close()


def test_a_wait_in_the_queue_ends(harness, data_plane):
    router = harness.router(
        harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=5, queue_timeout_secs=0.2
    )
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    second.send(head())
    status, fields, _ = second.rejection()
    assert (status, fields["x-llm-d-request-dropped-reason"]) == (408, "rejected-ttl-expired")
    first.close()
    second.close()


def test_a_worker_that_is_full_is_waited_for(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0, routing={"max_worker_requests": 1}, queue_size=5)
    plane = data_plane(router)
    first, second = plane.stream(), plane.stream()
    first.send(head())
    where = first.choice()
    second.send(head())
    first.send(response_head(end=True))
    assert second.choice() == where
    for stream in (first, second):
        stream.close()


# ---- the load


def test_the_load_lasts_to_the_end_of_the_response(harness, data_plane):
    router = harness.router(harness.worker(), epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    stream.choice()
    stream.send(response_head(200))
    assert stream.receive().WhichOneof("response") == "response_headers"
    assert router.loads() == [1]
    stream.close()
    router.wait_for_load(0)


@pytest.mark.parametrize("mode", [NONE, STREAMED, BUFFERED, DUPLEX])
@pytest.mark.parametrize("when", ["before", "behind", "in the response"])
def test_a_client_that_leaves_releases_its_load(harness, data_plane, mode, when):
    router = harness.router(harness.worker(), policy="cache_aware", epp_port=0)
    plane = data_plane(router)
    for _ in range(20):
        stream = plane.stream()
        beginning, rest = post(chat("hello"), mode=mode)
        stream.send(beginning)
        if mode == BUFFERED:
            stream.receive()
        if when != "before":
            if mode in (BUFFERED, DUPLEX):
                stream.send(rest)
            stream.choice()
            assert sum(router.loads()) >= 1
        if when == "in the response":
            stream.send(response_head(200))
        stream.cancel()
    router.must_rest()


def test_the_load_moves_to_the_worker_that_served(harness, data_plane):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    chosen = stream.choice()
    (other,) = [worker.authority for worker in workers if worker.authority != chosen]
    stream.send(response_head(200, served=other))
    stream.receive()
    (busy,) = [worker.url for worker in router.core.workers if worker.load]
    assert busy == f"http://{other}"
    assert "vllm_router_epp_served_elsewhere_total 1\n" in router.server.metrics_text()
    stream.close()


def test_breakers_learn_from_responses(harness, data_plane):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, epp_port=0, disable_circuit_breaker=False, cb_failure_threshold=2)
    plane = data_plane(router)
    bad = workers[0].authority
    for _ in range(12):
        stream = plane.stream()
        stream.send(head())
        chosen = stream.choice()
        stream.send(response_head(500 if chosen == bad else 200, end=True))
        stream.close()
    assert {plane.pick(head()) for _ in range(6)} == {workers[1].authority}


# ---- models


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
