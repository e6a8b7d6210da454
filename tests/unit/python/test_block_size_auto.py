"""block_size="auto" as the library, the command and a settings file have it."""

import warnings

import numpy as np
import pytest

from vllm_router import Router
from vllm_router.errors import WorkerNotFoundError
from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import RouterArgs, check_policy_options

A, B = "http://a:8000", "http://b:8000"
IDS = np.arange(200, dtype=np.uint32)


def test_every_way_to_say_auto() -> None:
    """mending row 31: it was refused."""
    flags = ["--worker-urls", A, "--policy", "auto", "--block-size"]
    for word in ("auto", "AUTO"):
        assert parse_router_args([*flags, word]).block_size == "auto"
    assert parse_router_args([*flags, "32"]).block_size == 32
    text = "routing:\n  policy: vllm_cache_aware\n  vllm_cache_aware: {block_size: auto}\n"
    assert RouterArgs.from_yaml(text).block_size == "auto"
    assert RouterArgs.from_yaml("block_size: auto\n").block_size == "auto"
    assert check_policy_options({"policy": "auto", "block_size": "Auto"})["block_size"] == "auto"


@pytest.mark.parametrize("size", [0, -1, 4097, 16.0, "automatic", "16", "", None, True, float("nan")])
def test_other_values_are_refused(size: object) -> None:
    with pytest.raises(
        ValueError, match=r"block_size is .*must be auto or a whole number between 1 and 4096"
    ):
        Router(policy="auto", worker_urls=[A], block_size=size)


def test_another_policy_does_not_read_it() -> None:
    with pytest.warns(UserWarning, match="block_size"):
        Router(policy="round_robin", worker_urls=[A], block_size="auto")


def test_the_library_tells_what_a_cache_holds() -> None:
    router = Router(policy="auto", worker_urls=[A], block_size="auto")
    with router.select(token_ids=IDS):
        pass
    assert router.explain(token_ids=IDS).matched == 12
    router.set_cache(A, block_size=64)
    assert router.stats()["block_index"]["block_sizes"] == {A: 64}
    assert router.explain(token_ids=IDS).matched == 12  # of 200 tokens 192
    assert router.explain(token_ids=IDS[:130]).matched == 8
    assert router.explain(token_ids=IDS[:128]).matched == 4  # the last token is computed anew
    router.set_cache(A, block_size=64, blocks=1)
    assert router.stats()["block_index"]["workers"] == {A: 4}


def test_ranks_of_a_host_are_told_together_or_one_by_one() -> None:
    ranks = [f"{A}@0", f"{A}@1"]
    router = Router(policy="vllm_cache_aware", worker_urls=[*ranks, B], block_size="auto")
    router.set_cache(A, block_size=32)
    router.set_cache(f"{A}@1", block_size=64)
    assert router.stats()["block_index"]["block_sizes"] == {ranks[0]: 32, ranks[1]: 64, B: 16}


def test_under_a_plain_size_only_the_capacity_counts() -> None:
    router = Router(policy="auto", worker_urls=[A], block_size=16)
    with router.select(token_ids=IDS):
        pass
    router.set_cache(A, block_size=128, blocks=1)
    block_index = router.stats()["block_index"]
    assert (block_index["block_sizes"], block_index["workers"]) == ({A: 16}, {A: 8})
    assert router.explain(token_ids=IDS[:100]).matched == 6


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware"])
def test_other_policies_take_the_call(policy: str) -> None:
    router = Router(policy=policy, worker_urls=[A])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        router.set_cache(A, block_size=32, blocks=100)


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"block_size": 0}, ValueError, "block_size is 0; it must be 1 to 65536"),
        ({"block_size": -16}, ValueError, "block_size is -16; it must be 1 to 65536"),
        ({"block_size": 10**12}, ValueError, "block_size is 1000000000000; it must be 1 to 65536"),
        ({"block_size": 10**30}, ValueError, "it must be 1 to 65536"),
        ({"block_size": float("nan")}, TypeError, "block_size is of type float; it must be an int"),
        ({"block_size": "auto"}, TypeError, "block_size is of type str; it must be an int"),
        ({"block_size": 16, "blocks": 0}, ValueError, "blocks is 0; it must be 1 to 2^40"),
        ({"block_size": 16, "blocks": 2**40 + 1}, ValueError, "it must be 1 to 2^40"),
        ({"block_size": 16, "blocks": 1.5}, TypeError, "blocks is of type float; it must be an int"),
    ],
)
def test_what_no_cache_holds_is_refused(given: dict[str, object], kind: type[Exception], words: str) -> None:
    router = Router(policy="auto", worker_urls=[A], block_size="auto")
    with pytest.raises(kind) as caught:
        router.set_cache(A, **given)
    assert words in str(caught.value)
    assert router.stats()["block_index"]["block_sizes"] == {A: 16}


def test_an_unknown_worker_is_named() -> None:
    router = Router(policy="auto", worker_urls=[A], block_size="auto")
    with pytest.raises(WorkerNotFoundError, match="http://b:8000"):
        router.set_cache(B, block_size=16)
