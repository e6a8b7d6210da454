"""What workers say of their KV events and models: the engines' own reports, and whatever else may come."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as core

# As vLLM 0.32 responds to GET /kv_event_sources.
VLLM = {
    "0": {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:32001",
        "replay_endpoint": "tcp://*:33001",
        "buffer_steps": 10000,
        "topic": "",
    }
}


def test_vllm_names_an_endpoint_per_rank():
    report = {"1": {**VLLM["0"], "endpoint": "tcp://*:32002", "replay_endpoint": None, "topic": "kv"}, **VLLM}
    assert core.kv_sources_in_report(json.dumps(report)) == [
        (0, "tcp://*:32001", "tcp://*:33001", ""),
        (1, "tcp://*:32002", "", "kv"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"enable_kv_cache_events": False},
        {"publisher": "null"},
        {"endpoint": ""},
        {"endpoint": None},
        {"endpoint": 5557},
        {"endpoint": "tcp://" + "x" * 600},
    ],
)
def test_a_rank_that_cannot_be_heard_is_left_out(change):
    assert core.kv_sources_in_report(json.dumps({"0": {**VLLM["0"], **change}})) == []


@pytest.mark.parametrize("rank", ["-1", "256", "x", "", "99999999999999999999"])
def test_a_rank_that_is_none_is_left_out(rank):
    assert core.kv_sources_in_report(json.dumps({rank: VLLM["0"]})) == []


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "3", '"x"'])
def test_what_is_no_report_is_none(text):
    assert core.kv_sources_in_report(text) is None
    assert core.kv_sources_in_server_info(text) is None
    assert core.base_models_in(text) == []


def test_without_an_engine_there_is_no_source():
    assert core.kv_sources_in_report("{}") == []


def test_sglang_names_a_first_port():
    info = {
        "kv_events": {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": 5557,
            "replay_endpoint_port_base": 5657,
            "dp_size": 2,
            "topic": "t",
        }
    }
    assert core.kv_sources_in_server_info(json.dumps(info)) == [
        (0, "tcp://*:5557", "tcp://*:5657", "t"),
        (1, "tcp://*:5558", "tcp://*:5658", "t"),
    ]
    info["kv_events"].update(endpoint_port_base=65535, replay_endpoint_port_base=None)
    assert core.kv_sources_in_server_info(json.dumps(info)) == [(0, "tcp://*:65535", "", "t")]


@pytest.mark.parametrize("events", [None, {}, [], {"endpoint_port_base": 0}, {"endpoint_port_base": "5557"}])
def test_sglang_without_events_has_no_source(events):
    assert core.kv_sources_in_server_info(json.dumps({"kv_events": events})) is None


@pytest.mark.parametrize(
    ("models", "names"),
    [
        ([{"id": "m", "parent": None}, {"id": "adapter", "parent": "m"}, {"id": "n"}], ["m", "n"]),
        ([{"id": "adapter", "parent": "m"}, {"id": "m"}], ["m"]),
        ([{"id": "adapter", "parent": "m"}], []),
        ([{"id": 3}, "x", {}], []),
        ([{"id": str(i)} for i in range(100)], [str(i) for i in range(64)]),
        ([], []),
        (None, []),
    ],
)
def test_base_models_have_no_parent(models, names):
    assert core.base_models_in(json.dumps({"data": models})) == names


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["0", "endpoint", "kv_events", "data", "id", "dp_size"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_taken_without_harm(value):
    text = json.dumps(value)
    core.kv_sources_in_report(text)
    core.kv_sources_in_server_info(text)
    core.base_models_in(text)
