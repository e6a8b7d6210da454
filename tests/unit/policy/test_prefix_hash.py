"""cpp/policy/prefix_hash.h: the documents' examples, checks and options. Random stories: tests/property."""

import numpy as np
import pytest

from tests.models.hashing import xxh3
from tests.models.policies import LeastLoad, PrefixHash
from vllm_router import Router
from vllm_router import _core_testing as testing

WORKERS = [f"http://w{i}:8000" for i in range(4)]


def fleet(*loads, **options):
    policy = testing.PolicyHarness("prefix_hash", virtual_nodes=150, seed=1, **options)
    for url in WORKERS:
        policy.add(url)
    for url, requests in zip(WORKERS, loads, strict=False):
        policy.set_load(url, requests)
    return policy


def prompt_of(owner):
    """A prompt that belongs to this worker."""
    policy = fleet()
    return next(text for i in range(1000) if policy.choose_prompt(text := f"prompt {i}".encode())[0] == owner)


def test_the_documented_hashes():
    twin = PrefixHash(LeastLoad(0))
    assert twin.point(list(range(300))) == 0xD12BA3BA3964C7ED
    assert twin.point(b"\x1esystem\x1fYou are helpful.\x1euser\x1fHello!") == 0xB55AE666A363AA9E


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ((12, 2, 3, 3), (0, "prefix_hash")),  # the mean is 5.25, so the bound max(6.56, 15.25)
        ((18, 2, 3, 3), (1, "overflow")),  # max(8.44, 16.75)
        ((16, 2, 3, 3), (0, "prefix_hash")),  # max(7.8, 16.25)
    ],
)
def test_the_documents_example(loads, expected):
    assert fleet(*loads).choose_prompt(prompt_of(0))[:2] == expected


def test_the_factor_counts_where_loads_are_high():
    # 100 each: the bound is max(1.25 * 100.25, 110.25) = 125.3.
    text = prompt_of(2)
    assert fleet(92, 92, 125, 91).choose_prompt(text)[1] == "prefix_hash"
    assert fleet(92, 92, 126, 91).choose_prompt(text)[:2] == (3, "overflow")


def test_requests_that_agree_in_their_first_tokens_share_an_owner():
    policy = fleet()
    for i in range(50):
        begin = f"{i} ".encode() * 600
        assert policy.choose_prompt(begin[:1024]) == policy.choose_prompt(begin[:1024] + b"whatever")
        ids = [i] * 256
        assert policy.choose_prompt(ids) == policy.choose_prompt([*ids, 7, 8])
    assert len({policy.choose_prompt([i] * 256)[0] for i in range(50)}) == 4


def test_a_character_is_never_cut():
    policy = fleet(prefix_token_count=1)
    for i in range(50):
        text = f"{i:03}".encode()
        assert policy.choose_prompt(text) == policy.choose_prompt(text + "é".encode())


def test_shorter_prompts_use_all_they_have():
    policy = fleet()
    assert len({policy.choose_prompt(bytes([65 + i]))[0] for i in range(26)}) > 1


@pytest.mark.parametrize("prompt", [None, b"", []])
def test_without_a_prompt_the_fallback_policy_decides(prompt):
    assert fleet(1, 0, 1, 1).choose_prompt(prompt) == (1, "fallback", 0, 0)


def test_a_scope_does_not_matter():
    policy = fleet()
    for i in range(50):
        text = f"prompt {i}".encode()
        assert policy.choose_prompt(text) == policy.choose_prompt(b"model\0" + text, scope=6)
        assert policy.choose_prompt([i]) == policy.choose_prompt([*range(16), i], scope=16)


def test_it_reads_the_prompt_and_what_its_fallback_reads():
    for name in ("least_load", "random"):
        own = testing.PolicyHarness(name).needs
        assert testing.PolicyHarness("prefix_hash", fallback_policy=name).needs == 32 | own


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("prefix_token_count", 0, "prefix_token_count is 0; .* between 1 and 1000000"),
        ("prefix_token_count", 1_000_001, "prefix_token_count is 1000001"),
        ("prefix_hash_load_factor", 999, "prefix_hash_load_factor is 0.999; .* between 1 and 10"),
        ("prefix_hash_load_factor", 10_001, "prefix_hash_load_factor is 10.001"),
    ],
)
def test_options_have_ranges(option, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        testing.PolicyHarness("prefix_hash", **{option: value})


def test_a_router_places_a_chat_by_its_routing_text_and_ids_by_themselves():
    router = Router("prefix_hash", WORKERS, seed=1)
    ring = PrefixHash(LeastLoad(0))
    harness = fleet()
    for i in range(20):
        chat = [{"role": "system", "content": f"You are {i}."}, {"role": "user", "content": "Hello!"}]
        text = f"\x1esystem\x1fYou are {i}.\x1euser\x1fHello!".encode()
        with router.select(messages=chat, model="m") as ticket:
            assert ticket.reason == "prefix_hash"
            assert ticket.worker_url == WORKERS[harness.choose_prompt(text)[0]]
        with router.select(prompt=text.decode()) as ticket:
            assert ticket.worker_url == WORKERS[harness.choose_prompt(text)[0]]
        with router.select(token_ids=[i] * 300, model="m") as ticket:
            assert ticket.worker_url == WORKERS[harness.choose_prompt([i] * 300)[0]]
    assert ring.point(b"a") == xxh3(b"a")


def test_batches_of_prompts_and_of_ids_are_placed_like_single_ones():
    router = Router("prefix_hash", WORKERS, seed=1, prefix_hash_balance_abs_threshold=1000)
    prompts = [f"prompt {i}" for i in range(30)]
    batch = router.select_batch(prompts)
    assert [WORKERS[i] for i in batch.workers] == [router.select(prompt=text).worker_url for text in prompts]
    ids = np.arange(90, dtype=np.uint32)
    offsets = np.arange(0, 91, 3, dtype=np.int64)
    batch = router.select_batch(token_ids=ids, offsets=offsets)
    singles = [router.select(token_ids=ids[i : i + 3]).worker_url for i in range(0, 90, 3)]
    assert [WORKERS[i] for i in batch.workers] == singles
