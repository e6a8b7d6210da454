"""--pd-usage and --pd-logprobs: what a response of two workers has of the prefill worker's."""

import json

import pytest

from tests.fakes.pd import ask, handing_over, responding, staged
from tests.fakes.wire import chunk

OF_PREFILL = {"prompt_tokens": 70, "completion_tokens": 1, "total_tokens": 71}
OF_DECODE = {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}
MERGED = {"prompt_tokens": 70, "completion_tokens": 9, "total_tokens": 79}
CHAT = "/v1/chat/completions"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def streaming(harness, *pieces):
    """A decode worker that sends a stream in these pieces."""

    def send(connection, _message):
        connection.send(STREAM_HEAD)
        for piece in pieces:
            connection.send(chunk(piece))
        connection.send(b"0\r\n\r\n")

    return harness.worker(send)


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
@pytest.mark.parametrize(("setting", "expected"), [({}, OF_DECODE), ({"pd_usage": "merge"}, MERGED)])
def test_a_response_has_the_usage_that_is_set(harness, path, setting, expected):
    decode = responding(harness, body=json.dumps({"choices": [], "usage": OF_DECODE, "x": 1.0}).encode())
    router = staged(harness, [handing_over(harness, usage=OF_PREFILL)], [decode], **setting)
    client = harness.client(router)
    for _ in range(2):
        message = ask(client, path)
        assert json.loads(message.body) == {"choices": [], "usage": expected, "x": 1.0}
    assert message.get("content-length") == str(len(message.body))


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_stay_decodes_unless_it_counts_none(harness, stream):
    hits = {"prompt_tokens_details": {"cached_tokens": 16}}
    for of_decode, expected in (({"cached_tokens": 3}, 3), ({"cached_tokens": -1}, 16)):
        usage = OF_DECODE | {"prompt_tokens_details": of_decode}
        body = json.dumps({"choices": [], "usage": usage}).encode()
        decode = streaming(harness, b"data: " + body + b"\n\n") if stream else responding(harness, body=body)
        prefill = handing_over(harness, usage=OF_PREFILL | hits)
        router = staged(harness, [prefill], [decode], pd_usage="merge")
        message = ask(harness.client(router), stream=stream)
        told = json.loads(message.body.strip().removeprefix(b"data: "))["usage"]
        assert told["prompt_tokens"] == 70
        assert told["prompt_tokens_details"] == {"cached_tokens": expected}


@pytest.mark.parametrize(
    "prefill_usage",
    [None, "text", {"prompt_tokens": "7"}, {"prompt_tokens": 10**30}, {"x": "y" * 10_000}, {}],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_usage_that_does_not_fit_leaves_decodes(harness, prefill_usage, stream):
    body = json.dumps({"choices": [], "usage": OF_DECODE}).encode()
    if stream:
        body = b"data: " + body + b"\n\n"
    decode = streaming(harness, body) if stream else responding(harness, body=body)
    router = staged(harness, [handing_over(harness, usage=prefill_usage)], [decode], pd_usage="merge")
    assert ask(harness.client(router), stream=stream).body == body


def test_what_decode_has_computed_itself_is_its_own(harness):
    body = json.dumps({"choices": [], "usage": OF_DECODE}).encode()
    prefill = responding(harness, body=json.dumps({"choices": [], "usage": OF_PREFILL}).encode())
    router = staged(harness, [prefill], [responding(harness, body=body)], pd_usage="merge")
    assert ask(harness.client(router)).body == body


@pytest.mark.parametrize(("setting", "merges"), [({}, True), ({"pd_logprobs": "decode"}, False)])
def test_log_probabilities_of_the_prompt_are_those_that_are_set(harness, setting, merges):
    of_decode = b'{"choices":[],"prompt_logprobs":null}'
    prefill = handing_over(harness, prompt_logprobs=[None, 1])
    router = staged(harness, [prefill], [responding(harness, body=of_decode)], **setting)
    message = ask(harness.client(router), CHAT, prompt_logprobs=0)
    assert message.body == (b'{"choices":[],"prompt_logprobs":[null, 1]}' if merges else of_decode)


def test_both_are_merged_at_once(harness):
    of_decode = json.dumps({"choices": [], "prompt_logprobs": None, "usage": OF_DECODE}).encode()
    prefill = handing_over(harness, prompt_logprobs=[None, 1], usage=OF_PREFILL)
    router = staged(harness, [prefill], [responding(harness, body=of_decode)], pd_usage="merge")
    message = ask(harness.client(router), CHAT, prompt_logprobs=0)
    assert json.loads(message.body) == {"choices": [], "prompt_logprobs": [None, 1], "usage": MERGED}
