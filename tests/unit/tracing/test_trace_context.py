"""cpp/tracing/trace_context.h: whose trace a request is part of, and which traces are kept."""

import math
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"
IDS = (0x4BF92F3577B34DA6, 0xA3CE929D0E0E4736, 0x00F067AA0BA902B7)
WORDS = st.integers(0, 2**64 - 1)


def slow_parse(text):
    """The twin: a regular expression of W3C's grammar."""
    match = re.fullmatch(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", text, re.DOTALL)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5] is not None):
        return None
    trace, span = int(match[2], 16), int(match[3], 16)
    if not trace or not span:
        return None
    return trace >> 64, trace & 2**64 - 1, span, bool(int(match[4], 16) & 1)


def test_a_traceparent_is_read():
    assert testing.parse_traceparent(GOOD) == (*IDS, True)
    assert testing.parse_traceparent(GOOD[:-2] + "00") == (*IDS, False)
    assert testing.parse_traceparent(GOOD[:-2] + "03") == (*IDS, True)
    assert testing.parse_traceparent(GOOD[:-2] + "fe") == (*IDS, False)


@pytest.mark.parametrize("text", ["cc" + GOOD[2:], "cc" + GOOD[2:] + "-what-follows", "01" + GOOD[2:] + "-"])
def test_of_a_higher_version_the_known_part_is_read(text):
    assert testing.parse_traceparent(text) == (*IDS, True)


@for_each_row(
    "text",
    [
        "",
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-",  # version 00 has nothing more
        "ff" + GOOD[2:],
        "cc" + GOOD[2:] + "x",
        GOOD.upper(),
        GOOD.replace("-", "_"),
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
        " " + GOOD,
        GOOD + " ",
    ],
)
def test_anything_else_is_none(text):
    assert testing.parse_traceparent(text) is None


@given(
    st.tuples(WORDS, WORDS, WORDS, st.integers(0, 255), st.integers(0, 255)),
    st.sampled_from(["", "-", "-x", "x"]),
    st.lists(st.tuples(st.integers(0, 54), st.sampled_from("0aAg- \x00")), max_size=2),
)
def test_the_parser_is_the_grammar_s(numbers, tail, changes):
    high, low, span, version, flags = numbers
    text = list(f"{version:02x}-{high:016x}{low:016x}-{span:016x}-{flags:02x}{tail}")
    for position, character in changes:
        text[position] = character
    assert testing.parse_traceparent("".join(text)) == slow_parse("".join(text))


@given(WORDS, WORDS.filter(bool), WORDS.filter(bool), st.booleans())
def test_what_is_written_is_read_again(high, low, span, sampled):
    text = testing.write_traceparent((high, low, span, sampled))
    assert text == f"00-{high:016x}{low:016x}-{span:016x}-0{sampled:d}"
    assert testing.parse_traceparent(text) == (high, low, span, sampled)


def test_the_sampler_is_exact_at_the_ends_and_close_between():
    numbers = random.Random(1)
    lows = [numbers.getrandbits(64) for _ in range(20_000)]
    assert testing.sampled_of(0.0, lows) == 0
    assert testing.sampled_of(1.0, [*lows, 2**64 - 1, 0]) == len(lows) + 2
    for ratio in (0.01, 0.1, 0.5):
        sigma = math.sqrt(len(lows) * ratio * (1 - ratio))
        assert abs(testing.sampled_of(ratio, lows) - ratio * len(lows)) <= 3 * sigma


@given(st.floats(0, 1), WORDS)
def test_a_larger_ratio_keeps_what_a_smaller_one_keeps(ratio, low):
    smaller = testing.sampled_of(ratio / 2, [low])
    assert smaller <= testing.sampled_of(ratio, [low])
    # The upper eight bits have no part in it.
    assert testing.sampled_of(ratio, [low]) == testing.sampled_of(ratio, [low & 2**56 - 1])


@given(st.booleans(), st.sampled_from([0.0, 1.0]), WORDS)
def test_the_parent_decides_for_its_trace(sampled, ratio, seed):
    trace = testing.start_trace((*IDS, sampled), ratio, seed)
    assert (trace["trace"], trace["parent"], trace["sampled"]) == (IDS[:2], IDS[2], sampled)
    assert trace["span"] not in (0, IDS[2])


@given(WORDS)
def test_without_a_parent_a_trace_starts(seed):
    trace = testing.start_trace(None, 1.0, seed)
    assert trace["sampled"]
    assert (trace["parent"], any(trace["trace"]), trace["span"] != 0) == (0, True, True)
    assert testing.start_trace(None, 1.0, seed) == trace
    assert testing.start_trace(None, 1.0, seed + 1 if seed < 2**63 else seed - 1)["trace"] != trace["trace"]


@given(WORDS)
def test_the_spans_below_one_are_all_different(span):
    below = testing.spans_below(span, 50)
    assert len({span, 0, *below}) == 102 - (span == 0)
