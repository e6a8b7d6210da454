"""cpp/disaggregation/prefill_response.h: what is handed over, and the responses of real engines."""

import json
from pathlib import Path

import pytest

from tests.rows import for_each_row
from vllm_router._core_testing import read_prefill_response

# vLLM 0.32.0 with NIXL on CPUs; tests/data/README.md says what a line has.
RECORDED = Path(__file__).parents[2] / "data" / "pd" / "vllm_0.32_nixl.jsonl"
CASES = {case["case"]: case for case in map(json.loads, RECORDED.read_text().splitlines())}
PARAMETERS = (
    b'{"remote_engine_id":"e","remote_request_id":"r","remote_host":"h","remote_port":1,'
    b'"remote_block_ids":[[1]]}'
)


def found(response):
    return read_prefill_response(response, "nixl")


def with_parameters(members=b'"choices":[{"finish_reason":"length"}]', parameters=PARAMETERS):
    return b"{" + members + b',"kv_transfer_params":' + parameters + b"}"


@for_each_row("case", sorted(set(CASES) - {"n2", "list2", "p-stream", "generate"}))
def test_the_parameters_of_real_engines_are_found_raw(case):
    response = CASES[case]["prefill_response"].encode()
    hand_over, raw, pushes = found(response)
    assert (hand_over, pushes) == ("whole", False)
    assert raw in response
    assert (
        json.loads(raw)
        == json.loads(response)["kv_transfer_params"]
        == CASES[case]["decode_request"]["kv_transfer_params"]
    )
    assert len(json.loads(raw)) == 14


@pytest.mark.parametrize(
    ("case", "why"),
    [("n2", "several"), ("list2", "several"), ("p-stream", "not_json"), ("generate", "absent")],
)
def test_what_real_engines_send_for_others_is_none(case, why):
    assert found(CASES[case]["prefill_response"].encode()) == (why, None, False)


def test_a_cut_response_is_not_json():
    whole = CASES["completions"]["prefill_response"].encode()
    for end in range(len(whole)):
        assert found(whole[:end]) == ("not_json", None, False)


@pytest.mark.parametrize(
    "name", ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids"]
)
def test_half_a_real_object_is_half(name):
    response = json.loads(CASES["completions"]["prefill_response"])
    response["kv_transfer_params"][name] = None
    assert found(json.dumps(response).encode()) == ("half", None, False)
    del response["kv_transfer_params"][name]
    assert found(json.dumps(response).encode()) == ("half", None, False)


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (b"", "not_json"),
        (b"[]", "not_json"),
        (b"data: {}\n\n", "not_json"),
        (b"{}", "absent"),
        (with_parameters(parameters=b"null"), "null"),
        (with_parameters(parameters=b"7"), "half"),
        (with_parameters(parameters=b"{}"), "half"),
        (with_parameters()[:-1] + b',"kv_transfer_params":null}', "several"),
        (with_parameters(b'"choices":[{"finish_reason":"length"},{"finish_reason":"length"}]'), "several"),
    ],
)
def test_why_there_is_nothing(response, why):
    assert found(response) == (why, None, False)


@pytest.mark.parametrize("reason", [b'"length"', b'"stop"', b'"tool_calls"'])
def test_a_limit_and_a_stop_are_ends(reason):
    assert found(with_parameters(b'"choices":[{"finish_reason":' + reason + b"}]")) == (
        "whole",
        PARAMETERS,
        False,
    )


@pytest.mark.parametrize("reason", [b'"abort"', b'"error"', b"null", b"7", b'""'])
def test_an_abort_is_none(reason):
    assert found(with_parameters(b'"choices":[{"finish_reason":' + reason + b"}]"))[0] == "unfinished"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (b'"stop_reason":"max_tokens"', "whole"),
        (b'"stop_reason":"end_turn"', "whole"),
        (b'"stop_reason":null', "unfinished"),
        (b'"status":"incomplete"', "whole"),
        (b'"status":"completed"', "whole"),
        (b'"status":"failed"', "unfinished"),
        (b'"status":"cancelled"', "unfinished"),
        (b'"choices":[]', "unfinished"),
        (b'"text":["hi"]', "whole"),
    ],
)
def test_each_api_has_its_own_reason(members, why):
    assert found(with_parameters(members))[0] == why


def test_a_worker_that_pushes_is_noticed():
    pushing = PARAMETERS[:-1] + b',"transfer_mode":"push"}'
    assert found(with_parameters(parameters=pushing)) == ("whole", pushing, True)
    assert read_prefill_response(with_parameters(parameters=pushing), "nixl_push") == ("whole", pushing, True)
    assert read_prefill_response(with_parameters(parameters=pushing), "moriio") == ("whole", pushing, False)
    without_blocks = pushing.replace(b"[[1]]", b"null")
    assert found(with_parameters(parameters=without_blocks)) == ("whole", without_blocks, True)


def test_a_store_hands_over_nothing():
    assert read_prefill_response(with_parameters(), "shared_store") == ("not_used", None, False)
