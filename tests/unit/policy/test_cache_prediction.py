"""cpp/policy/cache_prediction.h: expected tokens of each unit, and the sums of every policy that matches."""

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("decided", "prompt_tokens", "expected"),
    [
        (("tokens", 1740, 1893, 1888), 1893, (1740, 148)),
        (("tokens", 1740, 1893, 1000), None, (1740, 0)),
        (("blocks", 10, 20, 12), 333, (160, 32)),  # of token ids: the block size
        (("bytes", 500, 1000, 750), 300, (150, 75)),  # the share of the prompt
        (("bytes", 500, 1000, 750), None, (125, 62)),  # four bytes are a token
        (("bytes", 0, 0, 0), 300, (0, 0)),
        (("none", 0, 0, 0), 300, None),
    ],
)
def test_expected_tokens(decided, prompt_tokens, expected):
    assert testing.cache_prediction(*decided, prompt_tokens=prompt_tokens) == expected


def test_blocks_of_text_are_a_share_of_the_prompt_where_its_size_is_known():
    of_text = {"blocks_are_tokens": False}
    assert testing.cache_prediction("blocks", 10, 20, prompt_tokens=400, **of_text) == (200, 0)
    assert testing.cache_prediction("blocks", 10, 20, **of_text) == (160, 0)


MATCHING = ["auto", "cache_aware", "kv_aware", "kv_logit", "kv_overlap", "vllm_cache_aware"]


@pytest.mark.parametrize("policy", MATCHING)
def test_every_policy_that_matches_sums_what_it_predicted(policy):
    router = Router(policy=policy, worker_urls=["http://w0:1", "http://w1:1"], seed=1)
    ids = list(range(160))
    first = router.select(token_ids=ids)
    first.finish(prompt_tokens=160, cached_tokens=0)
    second = router.select(token_ids=ids)
    assert second.worker_url == first.worker_url
    second.finish(prompt_tokens=160, cached_tokens=100)
    sums = router.stats()["cache_prediction"]
    predicted = sums["predicted_tokens"]
    assert 140 <= predicted <= 160
    assert sums == {
        "predicted_tokens": predicted,
        "reported_tokens": 100,
        "miss_tokens": predicted - 100,
        "overpredicted_requests": 1,
        "foregone_tokens": 0,
    }


# Not auto: to it, hundreds of requests within milliseconds are a fleet at its limit, where a copy is dear.
@pytest.mark.parametrize("policy", [policy for policy in MATCHING if policy != "auto"])
def test_what_load_was_preferred_to_is_foregone(policy):
    router = Router(policy=policy, worker_urls=[f"http://w{i}:1" for i in range(4)], seed=1)
    ids = list(range(160))
    first = router.select(token_ids=ids)
    first.finish(prompt_tokens=160)
    holder = first.worker_url
    # The holder's load grows until another worker is preferred.
    tickets = []
    for number in range(600):
        ticket = router.select(token_ids=[1_000_000 + number] * 16, among=[holder])
        tickets.append(ticket)
    ticket = router.select(token_ids=ids)
    assert ticket.worker_url != holder
    ticket.finish(prompt_tokens=160)
    assert 140 <= router.stats()["cache_prediction"]["foregone_tokens"] <= 160
    assert router.receipts()[0]["best_match"]["worker"] == holder


def test_requests_without_a_report_count_for_none_of_the_comparisons():
    router = Router(policy="cache_aware", worker_urls=["http://w0:1"], seed=1)
    for _ in range(2):
        router.select(prompt="word " * 200).finish(prompt_tokens=200)
    assert set(router.stats()["cache_prediction"].values()) == {0}
