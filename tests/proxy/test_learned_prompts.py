"""What routers learn from requests: only prompts that an engine has computed count as cached."""

import json

import pytest

from tests.fakes.wire import response

TEXT = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 40
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}
MESSAGE = {"model": "m", "max_tokens": 1, "system": TEXT, "messages": [{"role": "user", "content": "hi"}]}
COUNT = {"model": "m", "system": TEXT, "messages": [{"role": "user", "content": "hi"}]}
POLICIES = pytest.mark.parametrize("policy", ["auto", "cache_aware", "vllm_cache_aware"])


def status(client, path, body, *fields):
    answer = client.ask("POST", path, *fields, body=json.dumps(body).encode())
    return answer.status, answer.get("x-vllm-router-cache-status")


def matched(client, path, body):
    return int(status(client, path, body)[1].partition("/")[0])


def engine(statuses):
    """Answers with these, one after the other, and 200 afterwards."""

    def answer(connection, message):
        code = 200 if message.method == "GET" or not statuses else statuses.pop(0)
        connection.send(response(code, b"{}", ("Content-Type", "application/json")))

    return answer


@POLICIES
@pytest.mark.parametrize(
    ("path", "body", "later"),
    [
        ("/v1/messages/count_tokens", COUNT, ("/v1/messages", MESSAGE)),
        ("/tokenize", CHAT, ("/v1/chat/completions", CHAT)),
        ("/v1/tokenize", CHAT, ("/v1/chat/completions", CHAT)),
        ("/v1/chat/completions/render", CHAT, ("/v1/chat/completions", CHAT)),
        ("/v1/responses/input_tokens", {"input": TEXT}, ("/v1/responses", {"input": TEXT})),
        ("/v1/completions/render", {"prompt": TEXT}, ("/v1/completions", {"prompt": TEXT})),
    ],
)
def test_what_only_looks_at_a_prompt_teaches_nothing(harness, policy, path, body, later):
    """Row 13: the next request claimed all of 313 blocks, after /v1/messages/count_tokens for instance."""
    router = harness.router(harness.worker(), policy=policy, decision_headers=True)
    client = harness.client(router)
    assert status(client, path, body)[0] == 200
    assert matched(client, *later) == 0
    assert matched(client, *later) > 0
    assert status(client, path, body)[0] == 200  # nor does it look for its prompt
    answer = client.ask("POST", path, body=json.dumps(body).encode())
    assert answer.get("x-vllm-router-cache-status") in (None, "0/0 blocks", "0/0 bytes")


@POLICIES
@pytest.mark.parametrize("code", [400, 401, 404, 413, 422, 429, 500, 503])
def test_a_prompt_that_its_worker_refused_is_not_cached(harness, policy, code):
    """Row 13: of those that hit the context limit, which are the longest of all."""
    worker = harness.worker(engine([code]))
    router = harness.router(worker, policy=policy, decision_headers=True, retry_max_retries=0)
    client = harness.client(router)
    assert status(client, "/v1/chat/completions", CHAT)[0] == code
    assert matched(client, "/v1/chat/completions", CHAT) == 0
    assert matched(client, "/v1/chat/completions", CHAT) > 0


def test_a_refusal_takes_nothing_back_that_was_cached_before(harness):
    """Row 13: an innocent prompt, of which a refused one is the continuation."""
    worker = harness.worker(engine([200, 400]))
    client = harness.client(harness.router(worker, policy="auto", decision_headers=True))
    more = {"model": "m", "messages": [*CHAT["messages"], {"role": "assistant", "content": TEXT}]}
    status(client, "/v1/chat/completions", CHAT)
    known = matched(client, "/v1/chat/completions", more)
    assert known > 0
    assert matched(client, "/v1/chat/completions", more) == known


@POLICIES
def test_claude_codes_billing_header_is_no_part_of_the_prompt(harness, policy):
    """Row 14: it differs in each request, and in front of it nothing matches."""
    client = harness.client(harness.router(harness.worker(), policy=policy, decision_headers=True))
    for turn in range(3):
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={turn};"}
        body = MESSAGE | {"system": [billing, {"type": "text", "text": TEXT}]}
        found = matched(client, "/v1/messages", body)
        assert (found > 0) == (turn > 0)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("marks", [False, True])
def test_the_billing_header_is_removed_for_engines_that_keep_it(harness, path, marks):
    """Row 14: --strip-anthropic-billing-header; all other bytes stay."""
    worker = harness.worker()
    router = harness.router(
        worker,
        policy="round_robin",
        strip_anthropic_billing_header=True,
        anthropic_cache_control_injection=marks,
    )
    client = harness.client(router)
    block = b'{"type":"text","text":"x-anthropic-billing-header: a"}'
    marker = b',"cache_control":{"type":"ephemeral"}' if marks and path == "/v1/messages" else b""
    rest = b'{"type" : "text","text":"You are \\u00e9."'
    client.ask("POST", path, body=b'{"system":[' + block + b", " + rest + b'}],"messages":[]}')
    client.ask("POST", path, body=b'{"system":[' + block + b'],"messages":[]}')
    client.ask("POST", "/v1/chat/completions", body=b'{"system":[' + block + b"]}")
    assert [message.body for message in worker.requests if message.method == "POST"] == [
        b'{"system":[' + rest + marker + b'}],"messages":[]}',
        b'{"system":[],"messages":[]}',
        b'{"system":[' + block + b"]}",
    ]
