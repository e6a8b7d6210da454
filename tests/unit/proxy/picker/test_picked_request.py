"""cpp/proxy/picker/picked_request.h: a request at a gateway gets the proxy's choice, and holds its load."""

import random

import pytest

from tests.fakes.data_plane import (
    BUFFERED,
    BUFFERED_PARTIAL,
    DUPLEX,
    NONE,
    STREAMED,
    body,
    chat,
    head,
    post,
    response_head,
)
from tests.fakes.wire import request

CHAT = "/v1/chat/completions"


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


@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max_payload_size": 1000}, 413), ({"body_memory_mb": 1}, 503)],
    ids=["size", "memory"],
)
def test_a_body_that_comes_in_the_queue_has_the_limits_of_others(harness, data_plane, limit, status):
    router = harness.router(harness.worker(), epp_port=0, max_concurrent_requests=1, queue_size=5, **limit)
    plane = data_plane(router)
    first, large, last = plane.stream(), plane.stream(), plane.stream()
    first.send(head())
    first.choice()
    large.send(head(method="POST"), body(b"x" * 500, end=False), body(b"x" * 2_000_000, end=False))
    assert large.rejection()[0] == status
    last.send(head())
    first.send(response_head(end=True))
    last.choice()  # the permit went past the one that was rejected
    assert "vllm_router_body_memory_bytes 0\n" in router.server.metrics_text()
    for stream in (first, large, last):
        stream.close()


# ---- the load


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
