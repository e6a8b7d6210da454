"""cpp/proxy/continuation/stream_record.h: what the access log and the metrics say of a continued stream."""

import json

import pytest

from tests.fakes.continued import COMPLETIONS, counts, got
from tests.fakes.token_engines import Engine, event, sends
from tests.fakes.wire import eventually
from tests.proxy.test_token_continuation import TOKENS, body
from vllm_router import _core


@pytest.mark.parametrize(
    ("text", "said", "metric"),
    [
        (
            "Tell me",
            {"continued": 1, "continue_method": "tokens", "continue_tokens": 1, "continue_end": "whole"},
            {},
        ),
        ("x", {"continue_end": "settle"}, {"settle": 1}),
    ],
)
def test_a_line_and_a_count(harness, written_to, text, said, metric):
    first = Engine(harness, sends(event(" me", [5], [1, 2])), lambda _: text)
    second = Engine(harness, sends(event("!", [6], [1, 2, 5], end="stop"), then="end"), lambda _: text)
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        router = harness.router(first.url, second.url, access_log=True, **TOKENS)
        while not first.sent:
            got(harness.client(router), COMPLETIONS, body(COMPLETIONS))
        eventually(lambda: '"continue_why"' in stdout(), "there is no line")
        (line,) = [json.loads(each) for each in stdout().splitlines() if '"continue_why"' in each]
    finally:
        _core.configure_log()
    assert counts(router, "streams_cut_total") == metric
    names = ("continued", "continue_method", "continue_tokens", "continue_end")
    assert {name: line[name] for name in names if name in line} == said
