"""cpp/routing/request_fields.h: what is read of a body, and what is not taken for a body."""

import json
import os
import subprocess
import sys

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

NOTHING = {
    "session_params_session_id": None,
    "user": None,
    "session_id": None,
    "user_id": None,
    "conversation_id": None,
    "prompt_cache_key": None,
    "conversation": None,
    "metadata_session_id": None,
    "model": None,
    "stream": None,
    "priority": None,
    "max_tokens": None,
}


def fields(body, padded=False):
    return testing.request_fields(body if isinstance(body, bytes) else body.encode(), padded)


def only(body, **expected):
    return fields(body) == {**NOTHING, **expected}


def test_every_wanted_member_is_read_and_the_others_are_skipped():
    body = {
        "model": "llama-3",
        "messages": [{"role": "user", "content": "Hello!"}],
        "temperature": 0.5,
        "stream": True,
        "user": "ann",
        "session_id": "s1",
        "user_id": 7,
        "session_params": {"session_id": "p1", "other": [1, 2]},
        "max_tokens": 64,
        "metadata": {"user_id": '{"device_id": "d", "session_id": "m1"}'},
        "prompt_cache_key": "k1",
        "conversation": {"id": "c1"},
        "conversation_id": "c2",
    }
    assert fields(json.dumps(body)) == {
        "session_params_session_id": "p1",
        "user": "ann",
        "session_id": "s1",
        "user_id": "7",
        "conversation_id": "c2",
        "prompt_cache_key": "k1",
        "conversation": "c1",
        "metadata_session_id": "m1",
        "model": "llama-3",
        "stream": True,
        "priority": None,
        "max_tokens": 64,
    }


@for_each_row(
    ("user_id", "session"),
    [
        ('{"device_id":"d","session_id":"s"}', "s"),
        (' { "a" : {"session_id": "x"} , "session_id" : "\\u0073" } ', "s"),
        ("user_0f_account__session_s-1", "s-1"),
        ("user_0f_account__session_", None),
        ("ann_session_s", None),
        ("ann", None),
        ('{"session_id":5}', None),
        ('{"session_id":" "}', None),
        ('{"session_id"', None),
        ('{"session_id":"s', None),
        ("{", None),
        (["session_id"], None),
    ],
)
def test_the_session_in_the_metadata_is_one_that_claude_code_writes(user_id, session):
    assert only(json.dumps({"metadata": {"user_id": user_id}}), metadata_session_id=session)


def test_order_and_whitespace_of_members_change_nothing():
    body = {"user": "ann", "session_params": {"session_id": "p"}, "model": "m", "stream": False}
    turned = dict(reversed(body.items()))
    spellings = [json.dumps(body), json.dumps(turned, indent=4), json.dumps(turned, separators=(",", ":"))]
    assert fields(spellings[0]) == fields(spellings[1]) == fields(spellings[2])


def test_nothing_below_the_top_level_is_read():
    inside = {"user": "mallory", "session_id": "x", "session_params": {"session_id": "y"}, "stream": True}
    body = {"messages": [inside, [inside]], "metadata": inside, "session_params": {"nested": inside}}
    assert only(json.dumps(body))


def test_text_inside_a_prompt_is_not_a_member():
    assert only(json.dumps({"prompt": '"user": "mallory", "session_id": "x" }{ "user": 3'}))


@for_each_row(
    ("value", "expected"),
    [
        ('"abc"', "abc"),
        ('" abc "', " abc "),
        ('"\\u00e9\\n"', "é\n"),
        ('"😀"', "😀"),
        ("7", "7"),
        ("-7", "-7"),
        ("0", "0"),
        ("-0", "0"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ('""', None),
        ('" \\t\\n\\r"', None),
        ("1.0", None),
        ("1e3", None),
        ("true", None),
        ("null", None),
        ("[]", None),
        ('["abc"]', None),
        ('{"user":"abc"}', None),
        ('"\\ud800"', None),  # a lone surrogate: valid JSON that UTF-8 cannot say
    ],
)
def test_a_string_that_is_not_blank_or_an_integer_names_somebody(value, expected):
    assert only(f'{{"user":{value}}}', user=expected)
    assert only(f'{{"session_id":{value}}}', session_id=expected)
    assert only(f'{{"user_id" : {value} }}', user_id=expected)
    assert only(f'{{"session_params":{{"session_id":{value}}}}}', session_params_session_id=expected)


@pytest.mark.parametrize(("value", "expected"), [("5", 5), ("0", 0), ("18446744073709551615", 2**64 - 1)])
def test_limits_on_the_output_are_integers(value, expected):
    assert only(f'{{"max_tokens":{value}}}', max_tokens=expected)
    assert only(f'{{"max_completion_tokens":{value}}}', max_tokens=expected)


@pytest.mark.parametrize("value", ["-1", "1.5", "18446744073709551616", '"5"', "null", "true", "[5]"])
def test_anything_else_is_no_limit_on_the_output(value):
    assert only(f'{{"max_tokens":{value}}}')


@pytest.mark.parametrize("value", [0, 5, -5, 2**31 - 1, -(2**31)])
def test_a_priority_is_an_integer_of_32_bits(value):
    assert only(f'{{"priority":{value}}}', priority=value)


@pytest.mark.parametrize("value", ["1.5", "2147483648", "-2147483649", '"5"', "null", "true", "[5]", "1e3"])
def test_anything_else_is_no_priority(value):
    assert only(f'{{"priority":{value}}}')


def test_max_completion_tokens_counts_before_max_tokens():
    assert only('{"max_completion_tokens":5,"max_tokens":9}', max_tokens=5)
    assert only('{"max_tokens":9,"max_completion_tokens":5}', max_tokens=5)
    assert only('{"max_tokens":9,"max_completion_tokens":null}', max_tokens=9)


def test_a_model_is_any_string():
    assert only('{"model":""}', model="")
    assert only('{"model":5}')


def test_of_a_repeated_member_the_last_wins():
    assert only('{"user":"a","user":"b"}', user="b")
    assert only('{"user":"a","user":1.5}'), "also when the last is no name"
    assert only('{"session_params":{"session_id":"a"},"session_params":{}}')
    assert only('{"session_params":{"session_id":"a","session_id":"b"}}', session_params_session_id="b")
    assert only('{"stream":true,"stream":false}', stream=False)


def test_a_name_written_with_escapes_is_the_name_it_means():
    assert only('{"mod\\u0065l":"m"}', model="m")
    assert only('{"\\u0075ser":"a"}', user="a")
    assert only('{"session_params":{"session\\u005fid":"s"}}', session_params_session_id="s")
    assert only('{"user":"a","us\\u0065r":"b"}', user="b")
    assert only('{"user\\u0000":"a","user\\"":"b","\\ud800":"c"}')


def test_an_object_without_wanted_members_is_an_object():
    assert only("{}")
    assert only(' \n{ "a" : [ ] }\t\r\n')


@for_each_row(
    "body",
    [
        "",
        " ",
        "null",
        "5",
        '"user"',
        '[{"user":"a"}]',
        "{",
        "}",
        '{"user":"a"',
        '{"user":"a",',
        '{"user":"a"}}',
        '{"user":"a"} {}',
        '{"user":"a"} x',
        '{"user":"a"},',
        '{"user" "a"}',
        '{"user":"a" "b":1}',
        '{"user":"a}',
        '{"user:"a"}',
        "{user:1}",
        '{"a":1,,"user":"a"}',
        '{"user":"a","b":]}',
        '{"user":"a","b":"c":"d"},"session_id":8}',
        '{"session_params":{"session_id":"a"',
        '{"session_params":{"session_id" "a"},"user":"b"}',
        b'{"user":"\xff"}',
        b'{"a":"\xc3","user":"b"}',
        b'\xef\xbb\xbf\xef\xbb\xbf{"user":"a"}',
        b"\xef\xbb\xbf",
        b'{"user":"a"}\x00',
        '{"user":"a"}'.encode("utf-16"),
    ],
)
def test_what_is_not_one_whole_object_gives_nothing(body):
    assert fields(body) is None
    assert fields(body, padded=True) is None


@pytest.mark.parametrize("body", ['{"a":tru,"user":"u"}', '{"a":01,"user":"u"}', '{"a":[1 2],"user":"u"}'])
def test_spelling_of_what_is_skipped_is_left_to_the_worker(body):
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)
    assert only(body, user="u")


@for_each_row("value", ["tru", "nul", "01", "+1", "0x1", "1_000", "-", "'a'", "NaN", '"\\q"', "12a"])
def test_a_wanted_member_that_is_misspelled_is_no_value(value):
    body = ",".join(f'"{name}":{value}' for name in ("user", "stream", "max_tokens", "model", "user_id"))
    assert only(f'{{{body},"session_id":"s"}}', session_id="s")


def test_bytes_after_the_body_are_never_read_as_part_of_it():
    # The padding that the test puts there is quotes, which would close the string.
    assert fields('{"user":"a', padded=True) is None
    assert fields('{"user":1}', padded=True)["user"] == "1"
    assert fields('{"user":12', padded=True) is None


@pytest.mark.parametrize("padded", [False, True])
def test_a_body_of_any_length_around_the_padding_is_read(padded):
    for length in range(200):
        assert fields(json.dumps({"pad": "x" * length, "user": "u"}), padded)["user"] == "u"


def test_deep_nesting_is_skipped_without_recursion():
    deep = "[" * 100_000 + "]" * 100_000
    assert only(f'{{"a":{deep},"user":"u"}}', user="u")


@pytest.mark.parametrize("name", ["user", "unwanted"])
def test_many_repeated_escaped_strings_fit_the_parser(name):
    body = "{" + ",".join(f'"{name[:-1]}\\u00{ord(name[-1]):02x}":"\\n{i}"' for i in range(5000)) + "}"
    assert only(body, user="\n4999" if name == "user" else None)


def test_bodies_up_to_the_limit_are_read_and_longer_ones_are_not():
    limit = testing.MAX_PARSED_BODY_BYTES
    assert limit == 8 * 1024 * 1024
    rest = len('{"user":"u","p":""}')
    body = '{"user":"u","p":"' + "x" * (limit - rest) + '"}'
    assert len(body) == limit
    assert only(body, user="u")
    assert fields(body.replace('"p"', '"pp"')) is None


@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer's allocator keeps what is freed")
def test_a_large_hostile_body_leaves_no_memory_behind():
    # Parsing it takes 4 bytes for each bracket and comma, 32 MiB; none of them may stay with the thread.
    program = """
from pathlib import Path
from vllm_router import _core_testing as testing
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
hostile = b'{"a":[' + b"[],[]," * 1_300_000 + b"[]]}"
testing.request_fields(b'{"user":"u"}')
before = resident()
for _ in range(3):
    assert testing.request_fields(hostile) is not None
print(resident() - before)
"""
    # With a fixed threshold glibc gives large blocks back to the system as soon as they are freed.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 4 * 1024 * 1024


@pytest.mark.parametrize("padded", [False, True])
def test_a_byte_order_mark_and_escapes_in_names_hide_nothing(padded):
    assert fields('\ufeff{"us\\u0065r":"u"}', padded) == {**NOTHING, "user": "u"}
