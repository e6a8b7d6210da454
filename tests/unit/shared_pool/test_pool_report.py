"""cpp/shared_pool/pool_report.h: what operators, workers and the master tell of a shared pool."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

SERVER_INFO = {
    "model_path": "org/m",
    "page_size": 64,
    "tp_size": 2,
    "pp_size": 1,
    "speculative_algorithm": None,
    "hicache_storage_backend": "mooncake",
    "hicache_storage_backend_extra_config": '{"master_server_address": "mooncake:50051", '
    '"master_metrics_port": 9004, "extra_backend_tag": "prod"}',
}


def in_server_info(**changes):
    return testing.pool_in_server_info(json.dumps(SERVER_INFO | changes))


def test_a_layout_by_dynamos_names():
    text = json.dumps(
        {
            "backend": "mooncake",
            "page_size": 64,
            "tp_size": 4,
            "pp_size": 2,
            "is_mla_model": True,
            "is_eagle": True,
            "tp_lcm_size": 8,
            "should_split_heads": True,
            "extra_backend_tag": "t",
            "kv_events_endpoint": "tcp://x:1",
            "hicache_object_layout": {
                "pools": [{"suffixes": ["_a"], "hit_policy": "all_pages"}],
                "key_prefix": "p_",
            },
            "master_server_address": "[::1]:50051",
            "master_metrics_port": 9004,
        }
    )
    assert testing.pool_in_layout(text) == {
        "page_size": 64,
        "tp_size": 4,
        "pp_size": 2,
        "tp_lcm_size": 8,
        "should_split_heads": True,
        "is_eagle": True,
        "is_mla": True,
        "tag": "t",
        "key_prefix": "p_",
        "model": "",
        "objects": [(["_a"], 0)],
        "master": ("::1", 9004),
    }


@for_each_row(
    ("text", "complaint"),
    [
        ("", "no JSON object"),
        ("[]", "no JSON object"),
        ("{}", "its member page_size is missing"),
        ('{"page_size": 0}', "its member page_size is 0; it must be a whole number between 1"),
        ('{"page_size": "64"}', 'its member page_size is "64"'),
        ('{"page_size": 64, "tp_size": -1}', "its member tp_size is -1"),
        ('{"page_size": 64, "is_mla_model": 1}', "its member is_mla_model is 1; it must be true or false"),
        ('{"page_size": 64, "extra_backend_tag": []}', "extra_backend_tag is a list or an object"),
        ('{"page_size": 64, "backend": "lmcache"}', "only mooncake can be queried"),
        ('{"page_size": 64, "hicache_object_layout": []}', "hicache_object_layout is no object"),
        ('{"page_size": 64, "hicache_object_layout": {"pools": [{}]}}', "without a list of suffixes"),
    ],
)
def test_a_layout_that_cannot_be_used_is_rejected(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        testing.pool_in_layout(text)


def test_server_info_of_sglang():
    pool = in_server_info()
    assert (pool["page_size"], pool["tp_size"], pool["model"], pool["tag"]) == (64, 2, "org/m", "prod")
    assert pool["master"] == ("mooncake", 9004)
    assert pool["is_mla"] is None
    assert not pool["is_eagle"]


def test_the_extra_configuration_may_be_an_object_or_missing():
    assert in_server_info(hicache_storage_backend_extra_config={"master_server_address": "h:1"})[
        "master"
    ] == (
        "h",
        9003,
    )
    assert in_server_info(hicache_storage_backend_extra_config=None)["master"] == ("", 9003)


def test_eagle_and_split_heads():
    assert in_server_info(speculative_algorithm="EAGLE3")["is_eagle"]
    extra = {"tp_lcm_size": 8}
    pool = in_server_info(hicache_mem_layout="page_head", hicache_storage_backend_extra_config=extra)
    assert (pool["should_split_heads"], pool["tp_lcm_size"]) == (True, 8)


def test_data_parallel_attention_has_fewer_ranks():
    assert in_server_info(tp_size=8, dp_size=4, enable_dp_attention=True)["tp_size"] == 2
    assert in_server_info(tp_size=8, dp_size=4, enable_dp_attention=False)["tp_size"] == 8


@pytest.mark.parametrize("text", ["", "nonsense", "{}", '{"hicache_storage_backend": "nixl"}', "null"])
def test_workers_without_a_pool(text):
    assert testing.pool_in_server_info(text) is None


def reply(**data):
    return json.dumps({"success": True, "data": data})


def test_a_key_is_there_with_a_complete_replica_on_any_medium():
    text = reply(
        memory={"ok": True, "values": [{}]},
        disk={"ok": True, "values": [], "disk_values": [{}]},
        local={"ok": True, "local_disk_values": [{}]},
        nof={"ok": True, "nof_values": [{}]},
        written={"ok": True, "values": [], "disk_values": None},
        absent={"ok": False, "error": "OBJECT_NOT_FOUND"},
        denied={"ok": False, "values": [{}]},
        odd=7,
    )
    keys = ["memory", "disk", "local", "nof", "written", "absent", "denied", "odd", "unnamed"]
    assert testing.keys_in_reply(text, keys) == [True] * 4 + [False] * 5


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"success": false, "data": {}}', '{"success": true}', '{"success": true, "data": []}'],
)
def test_other_responses_are_no_reply(text):
    with pytest.raises(OSError, match="the response"):
        testing.keys_in_reply(text, ["a"])
