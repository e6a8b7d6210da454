"""cpp/routing/model_alias.h: other names of models."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router._core_testing import resolve_alias


def test_one_target_is_the_whole_text_behind_the_first_equals_sign():
    assert resolve_alias(["fast=Qwen/Qwen3-8B"], "fast", 7) == "Qwen/Qwen3-8B"
    assert resolve_alias(["fast=llama3:8b", "b=x=y"], "fast", 0) == "llama3:8b"
    assert resolve_alias(["fast=llama3:8b", "b=x=y"], "b", 0) == "x=y"
    assert resolve_alias(["fast=a"], "slow", 0) is None


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6).filter(any))
def test_a_hundred_hashes_in_a_row_share_by_weight(weights):
    text = "prod=" + ",".join(f"m{i}:{weight}" for i, weight in enumerate(weights))
    total = sum(weights)
    seen = collections.Counter(resolve_alias([text], "prod", hash_) for hash_ in range(total))
    assert seen == {f"m{i}": weight for i, weight in enumerate(weights) if weight}


@for_each_row(
    ("texts", "why"),
    [
        (["fast"], "has no '='"),
        (["=a"], "the name is none"),
        (["a="], "a model's name is none"),
        (["a=b,c"], "no weight"),
        (["a=b:1,c:x"], "no weight"),
        (["a=b:1,c:1000001"], "no weight"),
        (["a=b:0,c:0"], "all weights are 0"),
        (["a=" + ",".join(["b:1"] * 17)], "more than 16"),
        (["a=b", "a=c"], "given twice"),
        (["a=b", "b=c"], "an alias itself"),
        (["a\n=b"], "the name is none"),
        ([f"a{i}=b" for i in range(257)], "at most 256"),
    ],
)
def test_a_text_that_is_wrong_is_named(texts, why):
    with pytest.raises(ValueError, match=why):
        resolve_alias(texts, "a", 0)
