"""--pd-strip-client-params in front of workers without stages: members that steer transfers of KV blocks."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.pd import series
from tests.fakes.wire import eventually

PATH = "/v1/completions"
OWN = (
    b'{"kv_transfer_params":{"remote_host":"h"},"prompt":"hi","ec_transfer_params":1,"bootstrap_room":7,'
    b'"kv_hints":{}}'
)
INSIDE = b'{"vllm_xargs":{"kv_transfer_params":{},"a":1},"sampling_params":'
NESTED = INSIDE + b'{"extra_args":{"kv_transfer_params":1}}}'


def post(client, body, *fields):
    return client.ask("POST", PATH, ("Content-Type", "application/json"), *fields, body=body)


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware"])
def test_always_removes_them_and_nothing_else(harness, policy):
    worker = harness.worker()
    router = harness.router(worker, policy=policy, pd_strip_client_params="always")
    client = harness.client(router)
    for body in (
        OWN,
        NESTED,
        b'{"kv_transf\\u0065r_params":1,"x": 1.0}',
        b'{"prompt" : "kv_transfer_params" }',
    ):
        assert post(client, body).body == b"hello"
    copies = [message.body for message in worker.posts]
    assert json.loads(copies[0]) == {"prompt": "hi"}
    assert json.loads(copies[1]) == {"vllm_xargs": {"a": 1}, "sampling_params": {"extra_args": {}}}
    assert json.loads(copies[2]) == {"x": 1.0}
    assert copies[3] == b'{"prompt" : "kv_transfer_params" }'
    removed = {"kv_transfer_params": 4, "ec_transfer_params": 1, "bootstrap": 1, "kv_hints": 1}
    eventually(lambda: series(router, "pd_removed_members_total") == removed, "the counts")


def test_a_connector_that_only_a_fleet_with_stages_finds_is_not_needed(harness):
    router = harness.router(harness.worker(), kv_connector="auto", pd_strip_client_params="always")
    assert post(harness.client(router), OWN).body == b"hello"


@pytest.mark.parametrize("setting", [{}, {"pd_strip_client_params": "never"}])
def test_otherwise_all_bytes_pass(harness, setting):
    worker = harness.worker()
    client = harness.client(harness.router(worker, **setting))
    for body in (OWN, NESTED):
        assert post(client, body).body == b"hello"
    assert [message.body for message in worker.requests] == [OWN, NESTED]


@pytest.mark.parametrize("chunks", [False, True])
def test_always_finds_them_behind_any_length(harness, chunks):
    """A policy that does not look at bodies lets the router send long ones on while they arrive."""
    worker = harness.worker()
    router = harness.router(
        worker,
        policy="round_robin",
        pd_strip_client_params="always",
        max_payload_size=16 << 20,
        body_memory_mb=64,
    )
    client = harness.client(router)
    prompt = b"x" * (9 << 20)
    body = b'{"prompt":"' + prompt + b'","kv_transfer_params":1}'
    if chunks:
        pieces = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            client.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
        client.send(b"0\r\n\r\n")
        assert client.read_response("POST").body == b"hello"
    else:
        assert post(client, body).body == b"hello"
    assert json.loads(worker.requests[0].body) == {"prompt": prompt.decode()}


def test_a_second_worker_gets_no_more_than_the_first(harness):
    refusing, worker = harness.refusing_port(), harness.worker()
    router = harness.router(
        refusing, worker, policy="round_robin", pd_strip_client_params="always", disable_retries=False
    )
    client = harness.client(router)
    for _ in range(2):
        assert post(client, OWN).body == b"hello"
    assert [json.loads(message.body) for message in worker.requests] == [{"prompt": "hi"}] * 2


@pytest.mark.parametrize(
    "body",
    [
        OWN + b" and more",
        b'{"kv_transfer_params":1',
        OWN.decode().encode("utf-16"),
        b"{" + b",".join(b'"m%d":1' % i for i in range(1500)) + b"}",
    ],
)
def test_what_a_worker_might_read_and_the_router_does_not_is_no_way_past_it(harness, body):
    worker = harness.worker()
    router = harness.router(worker, pd_strip_client_params="always")
    message = post(harness.client(router), body)
    if message.status == 400:
        assert error_of(message)["code"] == "invalid_body"
        assert worker.requests == []
    else:
        assert not body.lstrip().startswith(b"{")


def test_what_is_no_object_passes_as_it_is(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, pd_strip_client_params="always"))
    bodies = [
        b"",
        b"[1, 2]",
        b"text",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nkv_transfer_params\r\n--x--",
    ]
    for body in bodies:
        assert post(client, body).body == b"hello"
    assert [message.body for message in worker.requests] == bodies
    assert client.ask("GET", "/x").body == b"hello"
