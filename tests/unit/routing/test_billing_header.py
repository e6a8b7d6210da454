"""cpp/routing/billing_header.h: the block of Claude Code that says who pays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.fe3; cch=e3a2f;"}
TEXT = {"type": "text", "text": "You are Claude Code."}
EMPTY, IMAGE = {"type": "text", "text": ""}, {"type": "image", "source": {}}
BLOCKS = st.sampled_from([BILLING, TEXT, EMPTY, IMAGE, "text"])


@given(st.lists(BLOCKS, max_size=6), st.sampled_from([None, 1]))
def test_all_such_blocks_go_and_all_else_stays(blocks, indent):
    body = {"model": "m", "system": blocks, "messages": [{"role": "user", "content": [BILLING]}]}
    stripped = testing.strip_billing_header(json.dumps(body, indent=indent).encode())
    assert json.loads(stripped) == body | {"system": [block for block in blocks if block != BILLING]}
    if BILLING not in blocks:
        assert stripped == json.dumps(body, indent=indent).encode()


def test_the_bytes_of_what_stays_are_those_of_the_client():
    block, rest = (
        b'{"type":"text","text":"x-anthropic-billing-header: a"}',
        rb'{"type":"text","text":"\u00e9"}',
    )
    body = b'{ "system" : [' + block + b" , " + rest + b' ], "n":1.0}'
    assert testing.strip_billing_header(body) == b'{ "system" : [' + rest + b' ], "n":1.0}'
    assert testing.strip_billing_header(body, ["n"]) == b'{"system" : [' + rest + b" ]}"


@pytest.mark.parametrize(
    "body",
    [
        {"system": BILLING["text"]},
        {"system": [BILLING | {"type": "other"}]},
        {"system": [{"type": "text", "text": " " + BILLING["text"]}]},
        {"instructions": [BILLING]},
        {"system": {"a": [BILLING]}},
        [BILLING],
    ],
)
def test_the_same_text_elsewhere_stays(body):
    written = json.dumps(body).encode()
    assert testing.strip_billing_header(written) == written


@pytest.mark.parametrize(
    "body",
    [
        b'{"system":[{"type":"text","text":"x-anthropic-billing-header: a","text":"b"}]}',
        b'{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}],"system":"b"}',
        b'{"system":[{"type":"text","text":"x-anthropic-billing-header: a"}]',
    ],
)
def test_what_two_parsers_may_read_differently_stays(body):
    assert testing.strip_billing_header(body) == body


def of_system(system):
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "m", "system": system, "messages": messages}).encode()


def test_it_is_no_part_of_a_prompts_text():
    """Row 14: two requests of one session shared some 64 bytes; an engine drops the block."""
    assert testing.routing_text(of_system([BILLING, TEXT]), path="/v1/messages") == testing.routing_text(
        of_system([TEXT]), path="/v1/messages"
    )
    other = json.loads(json.dumps(TEXT).replace("You", BILLING["text"] + " You"))
    assert testing.routing_text(of_system([other]), path="/v1/messages") == testing.routing_text(
        of_system([]), path="/v1/messages"
    )
    assert BILLING["text"] in str(testing.routing_text(of_system(BILLING["text"]), path="/v1/messages"))
