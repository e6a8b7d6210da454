"""cpp/proxy/exchange/usage_sink.h: prefill's count of the prompt's tokens in a stream of decode."""

import json
import random

import pytest

from tests.fakes.pd import ask, handing_over, staged
from tests.proxy.test_pd_usage import MERGED, OF_DECODE, OF_PREFILL, streaming


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_so_has_the_last_event_of_a_stream_however_it_is_cut(harness, size, line_end):
    def stream(usage):
        events = [
            {"choices": [{"text": 'a "usage": {"prompt_tokens": 1} of a text'}], "usage": None},
            {"choices": [], "usage": usage},
        ]
        lines = [b"data: " + json.dumps(event).encode() for event in events]
        return b"".join(line + 2 * line_end for line in [b": hello", *lines, b"data: [DONE]"])

    sent = stream(OF_DECODE)
    decode = streaming(harness, *(sent[at : at + size] for at in range(0, len(sent), size)))
    router = staged(harness, [handing_over(harness, usage=OF_PREFILL)], [decode], pd_usage="merge")
    message = ask(harness.client(router), stream=True, stream_options={"include_usage": True})
    events = [json.loads(line[6:]) for line in message.body.splitlines() if line.startswith(b"data: {")]
    assert events[1]["usage"] == MERGED
    rest = message.body.replace(json.dumps(MERGED).encode(), json.dumps(OF_DECODE).encode())
    assert rest == sent


def test_a_line_that_never_ends_is_not_collected(harness):
    long = b"data: " + b"x" * 300_000
    decode = streaming(harness, long[:100_000], long[100_000:], b'\ndata: {"usage":{}}\n\n')
    router = staged(harness, [handing_over(harness, usage=OF_PREFILL)], [decode], pd_usage="merge")
    message = ask(harness.client(router), stream=True)
    assert message.body == long + b'\ndata: {"usage":{}}\n\n'


def slowly(stream):
    """The whole stream, line by line."""

    def changed(line):
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            return line
        if line.startswith(b"data:") and isinstance(event, dict) and isinstance(event.get("usage"), dict):
            event["usage"] |= {"prompt_tokens": 70, "total_tokens": 70 + event["usage"]["completion_tokens"]}
            return b"data: " + json.dumps(event).encode()
        return line

    return b"\n".join(changed(line) for line in stream.split(b"\n"))


def random_line(dice):
    counts = {name: dice.randrange(100) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    events = [
        {"choices": [{"text": dice.choice(["a", "\n", '"usage":{', "data: {}"])}]},
        {"choices": [], "usage": None},
        {"choices": [], "usage": counts},
        {"usage": counts, "x": "y" * dice.randrange(200)},
    ]
    event = json.dumps(dice.choice(events)).encode()
    return dice.choice(
        [b"", b": comment", b"event: x", b"data: [DONE]", b"data: {", event, *[b"data: " + event] * 4]
    )


@pytest.mark.parametrize("seed", range(20))
def test_as_if_it_were_read_whole(harness, seed):
    dice = random.Random(seed)
    sent = b"\n".join(random_line(dice) for _ in range(30)) + dice.choice([b"", b"\n", b"\n\n"])
    pieces, rest = [], sent
    while rest:
        size = dice.choice([1, 2, 10, 100, 1000])
        pieces.append(rest[:size])
        rest = rest[size:]
    decode = streaming(harness, *pieces)
    router = staged(harness, [handing_over(harness, usage=OF_PREFILL)], [decode], pd_usage="merge")
    assert ask(harness.client(router), stream=True).body == slowly(sent)
