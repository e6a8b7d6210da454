"""cpp/routing/paged_prompts.h: which prompts have pages in a pool that workers share."""

import json

import pytest

from tests.models.page_keys import page_keys
from vllm_router import _core_testing as testing

IDS = list(range(200))


def key_of(body, models=("m", ""), tokens=64, pairs=False, policy="kv_logit"):
    return testing.pages_of(policy, json.dumps(body).encode(), tokens, pairs, list(models))


def test_prompts_of_ids_have_pages():
    assert key_of({"model": "m", "prompt": IDS}) == page_keys(IDS, 64, False)
    assert key_of({"model": "m", "prompt": IDS}, pairs=True) == page_keys(IDS, 64, True)
    assert key_of({"prompt": IDS}) == page_keys(IDS, 64, False)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "adapter", "prompt": IDS},
        {"model": "m", "prompt": IDS, "cache_salt": "s"},
        {"model": "m", "prompt": IDS[:63]},
        {"model": "m", "prompt": "text " * 100},
        {"model": "m"},
    ],
)
def test_others_have_none(body):
    assert key_of(body) == []


def test_nothing_is_hashed_without_a_pool():
    assert key_of({"model": "m", "prompt": IDS}, tokens=0) == []
    assert key_of({"model": "m", "prompt": IDS}, models=()) == []
