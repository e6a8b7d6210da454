"""cpp/routing/kv_connector.h: the table of connectors, and that one of another kind fits the interface."""

import json

import pytest

from vllm_router._core_testing import (
    decode_copy,
    knows_kv_connector,
    kv_connector_traits,
    kv_connectors,
    pd_plan,
    prefill_copy,
)


def test_the_table_has_each_connector_once():
    names = [traits["name"] for traits in kv_connectors()]
    assert names == ["nixl", "shared_store"]
    assert all(map(knows_kv_connector, names))
    assert not any(map(knows_kv_connector, ["", "NIXL", "nixl ", "mooncake"]))


# Workers that meet at a bootstrap server, as SGLang's do: both at once, no prompt at decode.


def test_a_connector_may_tell_both_the_same_and_shorten_nothing():
    assert kv_connector_traits("meeting")["order"] == "sglang"
    body = b'{"stream":true,"max_tokens":7,"prompt":"hi","bootstrap_room":1}'
    both = {
        "bootstrap_host": "10.0.0.1",
        "bootstrap_port": 8998,
        "stream": True,
        "max_tokens": 7,
        "prompt": "hi",
    }
    assert json.loads(prefill_copy("completions", body, "meeting")) == both
    assert json.loads(decode_copy("completions", body, "meeting", b"{}")[0]) == both


@pytest.mark.parametrize("body", [b'{"prompt":"hi","n":2}', b'{"prompt":["a","b"]}'])
def test_where_no_worker_serves_a_request_alone_it_is_rejected(body):
    plan = pd_plan("completions", body, "meeting")
    assert plan["kind"] == "rejected"
    assert "behind the connector meeting no worker serves one alone" in plan["error"]
    assert pd_plan("completions", body, "nixl")["kind"] == "local"
