"""cpp/disaggregation/transfer_members.h: what a client may not say."""

import json

import pytest

from vllm_router._core_testing import strip_transfer_members


def stripped(body):
    copy, counts = strip_transfer_members(body)
    return copy, {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        *(("kv_transfer_params", "kv_transfer_params"), ("ec_transfer_params", "ec_transfer_params")),
        *(("bootstrap_host", "bootstrap"), ("bootstrap_port", "bootstrap"), ("bootstrap_room", "bootstrap")),
        *((r"kv_tr\u0061nsfer_params", "kv_transfer_params"), ("kv_hints", "kv_hints")),
    ],
)
def test_each_is_removed_wherever_it_stands_and_counted(name, counted):
    value = b'{"remote_host":"10.9.9.9","prompt_token_ids":[1]}'
    member = f'"{name}":'.encode() + value
    assert stripped(b"{" + member + b"}") == (b"{}", {counted: 1})
    assert stripped(b'{"a":1.0, "b" : 2,' + member + b"}") == (b'{"a":1.0, "b" : 2}', {counted: 1})
    assert stripped(b"{" + member + b',"a":1,' + member + b"}") == (b'{"a":1}', {counted: 2})


def test_a_body_without_any_stays_as_it_is():
    body = b' {"kv_transfer_paramsx":1,"bootstrap":2, "in":{"kv_transfer_params":3},"vllm_xargs":{"a":1.0}} '
    assert stripped(body) == (body, {})


def test_what_vllm_merges_into_the_same_arguments_is_searched():
    inner = b'{"x":1e5,"kv_transfer_params":"a","ec_transfer_params":1}'
    counts = {"kv_transfer_params": 1, "ec_transfer_params": 1}
    assert stripped(b'{"a":1,"vllm_xargs":' + inner + b"}") == (b'{"vllm_xargs":{"x":1e5},"a":1}', counts)
    assert stripped(b'{"sampling_params":{"n":1.0,"extra_args":' + inner + b'},"a":1}') == (
        b'{"sampling_params":{"extra_args":{"x":1e5},"n":1.0},"a":1}',
        counts,
    )


def test_of_several_the_last_is_left_since_it_counts():
    bad = b'"vllm_xargs":{"kv_transfer_params":1,"x":1}'
    good = b'"vllm_xargs":{"y":2}'
    counts = {"kv_transfer_params": 1}
    assert stripped(b"{" + bad + b"," + good + b"}") == (b'{"vllm_xargs":{"y":2}}', counts)
    assert stripped(b"{" + good + b"," + bad + b"}") == (b'{"vllm_xargs":{"x":1}}', counts)
    assert stripped(b"{" + bad + b',"vllm_xargs":7}') == (b'{"vllm_xargs":7}', counts)


def test_an_object_with_too_many_members_is_not_readable():
    many = json.dumps({"vllm_xargs": {str(i): i for i in range(1025)}}).encode()
    assert stripped(many) == (many, {"unreadable": True})
    many = json.dumps({"sampling_params": {"extra_args": {str(i): i for i in range(1025)}}}).encode()
    assert stripped(many) == (many, {"unreadable": True})


def test_a_damaged_object_is_left_to_the_worker():
    body = b'{"vllm_xargs":{"kv_transfer_params":1,}}'
    assert stripped(body) == (body, {})


IDS = {"request_id": "request_id", "rid": "request_id"}
RANKS = dict.fromkeys(("data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank"), "rank")


@pytest.mark.parametrize(("name", "counted"), [*IDS.items(), *RANKS.items()])
def test_ids_and_ranks_of_a_request_are_removed_where_it_has_stages(name, counted):
    """Row 3: vLLM takes the id of a response from the body of /v1/responses, SGLang that of each prompt."""
    for value in ('"___prefill_addr_6.6.6.6:1___decode_addr_6.6.6.6:2_0"', '["a","b"]', "3"):
        member = f'"{name}":{value}'
        for inside in ("%s", '"extra_body":{%s}', '"parameters":{%s}', '"parameters":[{%s}]'):
            body = ('{"a":1,' + inside % member + "}").encode()
            copy, counts = stripped(body)
            assert (name not in copy.decode(), counts) == (True, {counted: 1})
            assert strip_transfer_members(body, staged=False)[0] == body
    # What is no argument of the request stays: a tool's schema, arguments of plug-ins.
    for inside in ('"tools":[{"parameters":{%s}}]', '"metadata":{%s}', '"vllm_xargs":{%s}'):
        body = ('{"a":1,' + inside % f'"{name}":1' + "}").encode()
        assert stripped(body) == (body, {})


def holders(depth=3):
    """Texts with %s where an engine looks for arguments, as deep as any does."""
    names = ("vllm_xargs", "extra_args", "extra_body", "sampling_params", "parameters")
    found = ["%s"]
    for _ in range(depth):
        found += [
            shape % (name, inner)
            for inner in found
            for name in names
            for shape in ('"%s":{"b":1,%s}', '"%s":[{"c":[]},{%s}]')
            if len(inner) < 60
        ]
    return sorted(set(found))


def test_no_place_in_which_engines_look_hides_one():
    """Row 5, for every place, as objects and as lists, one within another."""
    for place in holders():
        for name in ("kv_transfer_params", "ec_transfer_params", "bootstrap_room", "kv_hints"):
            body = ('{"a":1.0,' + place % f'"{name}":{{"x":[1]}}' + "}").encode()
            copy, counts = stripped(body)
            assert name not in copy.decode(), (place, copy)
            assert json.loads(copy)["a"] == 1.0
            assert sum(counts.values()) == 1


def test_what_stands_beside_it_in_a_list_stays():
    body = b'{"sampling_params":[{"n":1.0},7,{"extra_args":{"kv_transfer_params":1,"y":"]"}}],"a":1e5}'
    expected = b'{"sampling_params":[{"n":1.0},7,{"extra_args":{"y":"]"}}],"a":1e5}'
    assert stripped(body) == (expected, {"kv_transfer_params": 1})


def test_a_list_that_is_too_long_is_not_readable():
    body = json.dumps({"sampling_params": [{}] * 4097}).encode()
    assert stripped(body) == (body, {"unreadable": True})
    assert stripped(json.dumps({"sampling_params": [{}] * 4096}).encode())[1] == {}


def test_deep_nesting_costs_no_more_than_the_depth_that_is_read():
    deep = '{"kv_transfer_params":1}'
    for _ in range(2000):
        deep = '{"parameters":' + deep + "}"
    assert stripped(deep.encode())[1] == {}
