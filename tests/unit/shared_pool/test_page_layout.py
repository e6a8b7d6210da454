"""cpp/shared_pool/page_layout.h: the keys of a page, by what is known of the pool."""

import json

import pytest

from vllm_router import _core_testing as testing

PAGE = "0" * 64


def keys(**pool):
    """Of each layout, without the page."""
    layouts = testing.layouts_in(json.dumps({"page_size": 64, "is_mla_model": False, **pool}))
    return [[key.replace(PAGE, "*") for key in own] for own, _ in layouts]


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ({}, ["*_0_k", "*_0_v"]),
        ({"tp_size": 2}, ["*_0_k", "*_0_v", "*_1_k", "*_1_v"]),
        ({"tp_size": 1, "pp_size": 2}, ["*_0_0_k", "*_0_0_v", "*_0_1_k", "*_0_1_v"]),
        ({"tp_size": 1, "tp_lcm_size": 2}, ["*_0_k", "*_0_v"]),
        (
            {"tp_size": 1, "tp_lcm_size": 2, "should_split_heads": True},
            ["*_0_k", "*_0_v", "*_1_k", "*_1_v"],
        ),
        ({"is_mla_model": True, "tp_size": 8}, ["*__k"]),
        ({"is_mla_model": True, "pp_size": 2}, ["*_0_k", "*_1_k"]),
        ({"extra_backend_tag": "prod"}, ["prod_*_0_k", "prod_*_0_v"]),
        ({"hicache_object_layout": {"key_prefix": "x-"}}, ["x-*_0_k", "x-*_0_v"]),
    ],
)
def test_keys_by_layout(pool, expected):
    assert keys(**pool) == [expected]


def test_what_is_open_makes_several_layouts():
    assert keys(is_mla_model=None, model_path="org/m", extra_backend_tag="t") == [
        ["t_org-m_*_0_k", "t_org-m_*_0_v"],
        ["t_org-m_*__k"],
        ["t_*_0_k", "t_*_0_v"],
        ["t_*__k"],
    ]


def test_pools_that_a_worker_tells_of():
    pools = [
        {"suffixes": ["_kv"], "hit_policy": "all_pages"},
        {"suffixes": ["_swa"], "hit_policy": "trailing_pages", "trailing_pages": 2},
    ]
    layout = {"pools": pools, "key_prefix": "m_"}
    found = testing.layouts_in(json.dumps({"page_size": 64, "hicache_object_layout": layout}))
    assert found == [([f"m_{PAGE}_kv"], [f"m_{PAGE}_swa"])]


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        ({"model_path": "org/m:v1"}, 'the model\'s name is "org-m:v1"; it is part of the keys'),
        ({"extra_backend_tag": "a b"}, 'extra_backend_tag is "a b"'),
        ({"hicache_object_layout": {"key_prefix": "a,b"}}, 'key_prefix is "a,b"'),
        ({"tp_size": 64, "pp_size": 64}, "the number of objects of a page is 8192"),
        ({"page_size": 65537}, "page_size is 65537; it must be a whole number between 1 and 65536"),
        (
            {"hicache_object_layout": {"pools": [{"suffixes": ["_s"], "hit_policy": "trailing_pages"}]}},
            "no pool whose objects belong to every page",
        ),
        ({"hicache_object_layout": {"pools": [{"suffixes": ["/../"]}]}}, "a suffix is"),
    ],
)
def test_what_cannot_be_a_key_is_rejected(pool, complaint):
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        keys(**pool)
