"""Every connector's copies: what they mean, against the twin, and that all else is the client's bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models import pd_connectors as twin
from tests.models.body_map import members, pairs
from vllm_router import _core_testing as testing

CONNECTOR = st.sampled_from(twin.CONNECTORS)
STEERING = ("kv_transfer_params", "ec_transfer_params", "kv_hints")
TRANSFER = (*STEERING, "bootstrap_host", "bootstrap_room", "bootstrap_x")
RANKS = ("routed_dp_rank", "disagg_prefill_dp_rank", "data_parallel_rank")
SHORTENED = ("max_tokens", "max_completion_tokens", "stream", "stream_options")
STOPS = ("ignore_eos", "stop", "stop_token_ids")

END_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "rank": st.integers(0, 3),
        "engine_id": st.sampled_from([None, 'e"\n']),
        "zmq_address": st.just(None),
        "tp_size": st.just(None),
        "dp_size": st.sampled_from([None, 4]),
        "bootstrap_port": st.just(None),
    },
)
PUSH = st.fixed_dictionaries(
    {
        "engine_id": st.sampled_from(["e", 'e"']),
        "host": st.just("h"),
        "port": st.just(5600),
        "tp_size": st.sampled_from([1, 8]),
        "pp_size": st.sampled_from([None, 2]),
    }
)
ROOMS = st.lists(st.integers(0, 2**61 - 1).map(lambda room: 4 * room + 3), max_size=3)


@st.composite
def attempts(draw):
    """Mostly whole ones."""
    changes = {"mode": draw(st.sampled_from(["READ", "WRITE", "READ", "WRITE", None]))}
    for end in ("prefill", "decode"):
        if draw(st.integers(0, 2)) == 0:
            changes[end] = draw(END_CHANGES)
    if draw(st.booleans()):
        changes.setdefault("prefill", {})["push"] = draw(PUSH)
    if draw(st.integers(0, 5)) == 0:
        changes["bits"] = None
    if draw(st.integers(0, 5)) == 0:
        changes["id"] = 'other"id'
    if draw(st.booleans()):
        changes["rooms"] = draw(ROOMS)
        if draw(st.booleans()):
            changes["listed_prompts"] = len(changes["rooms"])
    changes["rank_fields"] = draw(st.booleans())
    return twin.attempt(**changes)


NAMES = st.sampled_from([*TRANSFER, *RANKS, *SHORTENED, *STOPS, "a", "prompt", "b", "model"])
VALUES = st.sampled_from(
    ["1.0", "1e5", "12345678901234567890", r'"h\u00e9"', "[1, 2]", '{"a" : [ ] }', "null", "true", '"x,\\"}"']
)


@st.composite
def bodies(draw):
    def spelled(name):
        return f"\\u{ord(name[0]):04x}{name[1:]}" if draw(st.integers(0, 4)) == 0 else name

    written = [
        f'"{spelled(name)}"{draw(st.sampled_from(["", " "]))}: {value}'
        for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=8))
    ]
    return f" {{ {' , '.join(written)} }}"


PARAMETERS = st.fixed_dictionaries(
    {
        "remote_engine_id": st.just("e1"),
        "remote_request_id": st.just("r"),
        "remote_host": st.just("10.0.0.9"),
        "remote_port": st.just(5601),
        "remote_block_ids": st.just([[1, 2]]),
    },
    optional={
        "transfer_mode": st.sampled_from(["push", "pull", None]),
        "tp_size": st.sampled_from([1, 2, None]),
        "pp_size": st.sampled_from([1, 2, None]),
        "transfer_id": st.sampled_from(["tx-1", None, ""]),
        "remote_dp_size": st.just(99),
        "later": st.just(1.5),
    },
)


def check_all_else(body, copy, edited):
    """Others are the client's, byte for byte and in its order; edited ones occur at most once."""
    kept = [one[2:] for one in members(body) if one.name not in edited]
    assert [one[2:] for one in members(copy) if one.name not in edited] == kept
    names = [one.name for one in members(copy)]
    assert all(names.count(name) <= 1 for name in edited)


def check_transfer(copy, told):
    """What steers transfers is the router's."""
    ours = {name: value for name, value in pairs(copy) if name.startswith("bootstrap_") or name in STEERING}
    assert ours == {name: value for name, value in told.items() if name not in RANKS}


@given(CONNECTOR, attempts(), bodies())
def test_prefills_copy(connector, told, body):
    copy = testing.prefill_copy("completions", body.encode(), connector, told).decode()
    expected = twin.told_to_prefill(connector, told)
    check_transfer(copy, expected)
    edited = {*TRANSFER, *RANKS, "bootstrap_port"}
    if connector == "sglang":
        assert {name: value for name, value in pairs(copy) if name in edited} == expected
    else:
        edited |= {"max_tokens", "max_completion_tokens", "stream", "stream_options"}
        whole = dict(pairs(copy))
        assert (whole["max_tokens"], whole["stream"]) == (1, False)
        assert "stream_options" not in whole
    if connector in ("mooncake", "moriio"):
        edited |= set(STOPS)
        assert {name: value for name, value in pairs(copy) if name in STOPS} == {"ignore_eos": True}
    check_all_else(body, copy, edited)


@given(CONNECTOR, attempts(), bodies(), st.none() | PARAMETERS)
def test_decodes_copy(connector, told, body, parameters):
    if testing.pd_plan("completions", body.encode(), connector)["kind"] == "rejected":
        return  # no worker gets a copy: behind MoRI-IO and P2P-NCCL what two workers cannot share is not sent
    response = json.dumps({"kv_transfer_params": parameters}).encode()
    copy, is_raw = testing.decode_copy("completions", body.encode(), connector, response, told)
    found, raw, pushes = testing.read_prefill_response(response, connector)
    whole = parameters if found == "whole" else None
    expected = twin.told_to_decode(connector, told, whole)
    check_transfer(copy.decode(), expected)
    edited = {*TRANSFER, *RANKS, "bootstrap_port"}
    if connector == "sglang" and expected:
        assert {name: value for name, value in pairs(copy.decode()) if name in edited} == expected
    check_all_else(body, copy.decode(), edited)
    if is_raw:
        assert raw in copy
    if connector in ("mooncake", "sglang", "shared_store"):
        assert found == "not_used"
    elif parameters is not None:
        pulled = connector == "nixl_push" and parameters.get("transfer_mode") == "pull"
        assert found == ("half" if pulled else "whole")
        says_push = parameters.get("transfer_mode") == "push"
        assert pushes == ((connector == "nixl" and says_push) or (connector == "nixl_push" and not pulled))


@given(CONNECTOR, attempts())
def test_order_and_what_is_missing(connector, told):
    assert testing.order_of(connector, told) == twin.order(connector, told)
    assert (testing.missing_for_pair(connector, told) != "") == twin.is_missing(connector, told)


@given(
    PARAMETERS,
    st.sampled_from([None, 7, "", 0, "x"]),
    st.sampled_from(["remote_host", "remote_port", "tp_size"]),
)
def test_a_push_identity_is_the_twins(parameters, value, name):
    for told in (parameters, parameters | {name: value}):
        assert testing.read_push_identity(json.dumps(told).encode()) == twin.push_identity(told)
