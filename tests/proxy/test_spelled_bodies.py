"""A body that is spelled in another way is routed as it is read by Python's json, as engines do."""

import json

import pytest

from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.pd import PARAMETERS, handing_over, staged
from tests.fakes.wire import response
from tests.proxy.test_stored_responses import engine

CHAT = "/v1/chat/completions"


def marked(members):
    """Behind a byte order mark, as VS Code's REST Client and tools of Windows write files."""
    return b"\xef\xbb\xbf" + json.dumps(members).encode()


def escaped(members):
    """The first letter of each name as an escape."""
    texts = [f'"\\u{ord(name[0]):04x}{name[1:]}": {json.dumps(value)}' for name, value in members.items()]
    return ("{" + ", ".join(texts) + "}").encode()


BOTH = pytest.mark.parametrize("spelled", [marked, escaped])


def post(client, path, body):
    answer = client.ask("POST", path, ("Content-Type", "application/json"), body=body)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def naming(harness):
    """A worker that says its port and what it read."""
    worker = harness.worker(
        lambda connection, message: connection.send(
            response(200, json.dumps({"port": worker.port, "read": json.loads(message.body)}).encode())
        )
    )
    return worker


@BOTH
def test_the_model_is_found_and_its_alias_is_replaced(harness, spelled):
    a, b = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(a, b, model_refresh_secs=3600, model_alias=["other=b"])
    wait_until_known(router, 2)
    client = harness.client(router)
    for model in ("b", "other"):
        for _ in range(4):
            assert post(client, CHAT, spelled({"messages": [], "model": model}))["by"] == b.url
    assert (a.wrong, b.wrong) == ([], [])


@BOTH
@pytest.mark.parametrize("padding", [0, 9 << 20], ids=["short", "long"])
def test_a_session_stays_on_its_worker(harness, spelled, padding):
    """Row 18: also where only the beginning of a body is held."""
    client = harness.client(harness.router(*(naming(harness) for _ in range(4)), policy="consistent_hash"))
    turns = 2 if padding else 4
    ports = set()
    for user in range(16):  # which the ports of the workers place: all at one worker once in 4**15 runs
        bodies = [spelled({"user": f"u{user}", "n": n, "prompt": "x" * padding}) for n in range(turns)]
        found = {post(client, "/v1/completions", body)["port"] for body in bodies}
        assert len(found) == 1
        ports |= found
        if padding:
            return
    assert len(ports) > 1


@BOTH
def test_a_conversation_goes_on_where_its_last_response_is(harness, spelled):
    client = harness.client(harness.router(*(engine(harness) for _ in range(4)), policy="round_robin"))
    turn = post(client, "/v1/responses", spelled({"input": "hello"}))
    for _ in range(8):
        after = post(client, "/v1/responses", spelled({"input": "on", "previous_response_id": turn["id"]}))
        assert after["worker"] == turn["worker"]


@BOTH
@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
def test_two_stages_serve_it(harness, spelled, path):
    """Row 18: a body behind a byte order mark was 400 in front of prefill and decode workers."""
    prefill, decode = handing_over(harness), naming(harness)
    client = harness.client(staged(harness, [prefill], [decode]))
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    answer = post(
        client, path, spelled({"model": "m", "kv_transfer_params": {"remote_host": "evil"}, **prompt})
    )
    assert len(prefill.posts) == 1
    assert json.loads(prefill.posts[0].body)["max_tokens"] == 1
    assert answer["read"]["kv_transfer_params"] == PARAMETERS
    assert "evil" not in str(answer)


@BOTH
def test_what_a_client_may_not_say_is_removed(harness, spelled):
    """Row 18: with --pd-strip-client-params always; a body behind a byte order mark was 400."""
    worker = naming(harness)
    client = harness.client(harness.router(worker, pd_strip_client_params="always"))
    body = spelled({"kv_transfer_params": {"remote_host": "evil"}, "prompt": "hi"})
    assert post(client, "/v1/completions", body)["read"] == {"prompt": "hi"}


def test_admin_calls_are_read_behind_a_byte_order_mark(harness):
    added = harness.worker()
    client = harness.client(harness.router(harness.worker()))
    assert client.ask("POST", "/workers", body=marked({"url": added.url})).status in (200, 201)
    assert client.ask("POST", "/admin/drain", body=marked({"url": added.url})).status == 202
