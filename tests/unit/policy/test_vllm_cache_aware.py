"""cpp/policy/vllm_cache_aware.h: its example, its edges, its options. Random stories: tests/property."""

import numpy as np
import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")
PROMPT = [1, 2, 3, 4, 5, 6]


def fleet(*urls, **options):
    policy = testing.PolicyHarness("vllm_cache_aware", seed=1, **options)
    for url in urls:
        policy.add(url)
    return policy


def busy(policy, **requests):
    for name, count in requests.items():
        policy.set_load(f"http://{name}:8000", count)


def teach(policy, url, blocks, others):
    """`url` gets these blocks: it alone is idle."""
    busy(policy, **{name[7]: 9 for name in others}, **{url[7]: 0})
    assert policy.choose_blocks(blocks)[0] == policy.urls.index(url)


@pytest.fixture
def example():
    """A holds four blocks of PROMPT, B two, C none."""
    policy = fleet(A, B, C)
    teach(policy, A, [*PROMPT[:4], 99], [B, C])
    teach(policy, B, [*PROMPT[:2], 98, 97, 96, 95, 94], [A, C])
    return policy


@pytest.mark.parametrize(
    ("loads", "answer"),
    [
        ({"a": 5, "b": 1, "c": 0}, (1, "overflow", 2, 6)),
        ({"a": 2, "b": 1, "c": 0}, (1, "overflow", 2, 6)),
        ({"a": 1, "b": 1, "c": 0}, (0, "prefix_hit", 4, 6)),
        ({"a": 9, "b": 9, "c": 0}, (2, "overflow", 0, 6)),
    ],
)
def test_the_longest_holder_with_room(example, loads, answer):
    busy(example, **loads)
    assert example.choose_blocks(PROMPT) == answer


def test_a_holder_of_too_little_is_none():
    policy = fleet(A, B)
    teach(policy, A, [1, 2, 3, 9, 9, 9, 9, 9, 9, 9], [B])
    busy(policy, a=1, b=0)
    assert policy.choose_blocks([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) == (
        1,
        "prefix_miss",
        0,
        10,
    )  # 0.3 is not more


def test_the_bound_average_never_uses_the_cache_of_an_idle_fleet():
    for bound, reason in (("room", "prefix_hit"), ("average", "overflow")):
        policy = fleet(A, load_bound=bound)
        assert policy.choose_blocks(PROMPT)[1] == "prefix_miss"
        assert policy.choose_blocks(PROMPT)[1] == reason


def test_below_the_floor_the_holder_has_room():
    for bound in ("room", "average"):
        policy = fleet(A, B, C, load_bound=bound, prefix_load_floor=3)
        policy.choose_blocks(PROMPT)
        holder = policy.choose_blocks(PROMPT)[0]
        for open_requests, reason in ((2, "prefix_hit"), (3, "overflow")):
            busy(policy, **{"abc"[holder]: open_requests})
            assert policy.choose_blocks(PROMPT)[1] == reason


def test_a_burst_on_an_idle_fleet_stays_with_its_cache():
    """mending row 37: of a burst of four on eight idle workers, three left its cache."""
    urls = [f"http://w{number}:8000" for number in range(8)]
    router = Router(policy="vllm_cache_aware", worker_urls=urls, seed=1)
    ids = list(range(160))
    holder = router.select(token_ids=ids)
    holder.finish()
    burst = [router.select(token_ids=ids) for _ in range(8)]
    assert {ticket.worker_url for ticket in burst} == {holder.worker_url}
    assert {ticket.reason for ticket in burst} == {"prefix_hit"}
    assert router.select(token_ids=ids).reason == "overflow"


def test_a_prompt_without_a_whole_block_is_a_miss_and_teaches_nothing():
    policy = fleet(A, B)
    assert policy.choose_blocks([])[1:] == ("prefix_miss", 0, 0)
    assert policy.block_count() == 0


def test_a_request_without_a_prompt_goes_to_the_fallback():
    policy = fleet(A, B)
    assert policy.choose()[1] == "fallback"


def test_a_prompt_longer_than_the_limit_is_known_up_to_it():
    policy = fleet(A, max_blocks_per_worker=4, cache_threshold=0.0)
    policy.choose_blocks(PROMPT)
    assert policy.choose_blocks(PROMPT) == (0, "prefix_hit", 4, 6)
    assert policy.block_count() == 4


def test_a_worker_that_left_is_forgotten_and_comes_back_empty():
    policy = fleet(A, B, cache_threshold=0.0)
    teach(policy, A, PROMPT, [B])
    policy.remove(A)
    assert policy.block_count() == 0
    policy.add(A)
    busy(policy, a=0, b=9)
    assert policy.choose_blocks(PROMPT) == (1, "prefix_miss", 0, 6)


def test_a_worker_that_fails_keeps_what_it_holds():
    policy = fleet(A, B)
    teach(policy, A, PROMPT, [B])
    busy(policy, a=0, b=0)
    policy.set_healthy(A, False)
    assert policy.choose_blocks(PROMPT)[:2] == (1, "prefix_miss")
    policy.set_healthy(A, True)
    busy(policy, a=0, b=5)
    assert policy.choose_blocks(PROMPT) == (0, "prefix_hit", 6, 6)


def test_many_workers_may_come_and_go():
    policy = fleet(A, cache_threshold=0.0)
    for number in range(5000):
        policy.add(f"http://w{number}:1")
        policy.remove(f"http://w{number}:1")
    policy.choose_blocks(PROMPT)
    assert policy.choose_blocks(PROMPT)[1] == "prefix_hit"


# ---- through Router


def chats(router, *contents, **members):
    body = {"model": "m", "messages": [{"role": "user", "content": text} for text in contents]} | members
    return router.select(body=body)


def test_text_is_matched_in_blocks_of_four_bytes_per_token():
    router = Router(policy="vllm_cache_aware", worker_urls=[A, B], seed=1)
    with chats(router, "x" * 1000) as first:
        assert (first.reason, first.matched, first.total) == ("prefix_miss", 0, 1006 // 64)
    with chats(router, "x" * 1000, "and more") as second:
        assert (second.reason, second.worker_url) == ("prefix_hit", first.worker_url)
        assert second.matched == 1006 // 64


def test_token_ids_are_matched_as_they_are_and_the_last_one_is_computed_anew():
    router = Router(policy="vllm_cache_aware", worker_urls=[A, B], seed=1)
    ids = np.arange(64, dtype=np.uint32)
    with router.select(token_ids=ids) as first:
        assert (first.reason, first.total) == ("prefix_miss", 4)
    for again in ({"token_ids": ids}, {"body": {"prompt": ids.tolist()}}):
        with router.select(**again) as ticket:
            assert (ticket.reason, ticket.unit, ticket.matched, ticket.total) == (
                "prefix_hit",
                "blocks",
                3,
                4,
            )
    with router.select(token_ids=np.append(ids, np.uint32(1))) as longer:
        assert longer.matched == 4


def test_models_and_salts_share_no_blocks():
    router = Router(policy="vllm_cache_aware", worker_urls=[A], seed=1)
    chats(router, "x" * 1000).finish()
    for members in ({"model": "other"}, {"cache_salt": "s"}):
        assert chats(router, "x" * 1000, **members).matched == 0
    assert chats(router, "x" * 1000).matched > 0
    ids = np.arange(100, dtype=np.uint32)
    router.select(token_ids=ids, model="m").finish()
    assert [router.select(token_ids=ids, **named).matched for named in ({}, {"model": "m"})] == [0, 6]
    assert router.select(body={"model": "m", "prompt": ids.tolist()}).matched == 6


def test_what_is_cached_is_no_load():
    router = Router(policy="vllm_cache_aware", worker_urls=[A], seed=1)
    ids = np.arange(1600, dtype=np.uint32)
    router.select(token_ids=ids).finish()
    loads = []
    for expected in (ids, ids[::-1].copy()):
        with router.select(token_ids=expected):
            loads.append(router.workers[0].queued_prefill_tokens)
    assert loads[1] - loads[0] == 1600 - 16


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("block_size", 0, "1 and 4096"),
        ("block_size", 4097, "1 and 4096"),
        ("max_blocks_per_worker", 0, "at least 1"),
        ("cache_threshold", 1.5, "0 and 1"),
        ("cache_threshold", -0.1, "0 and 1"),
        ("load_factor", 0.9, "1"),
        ("load_bound", "mean", "room"),
        ("tokenize", "workers", "worker"),
    ],
)
def test_options_out_of_range_are_refused_with_the_limit(option, value, limit):
    with pytest.raises(ValueError, match=option) as refused:
        Router(policy="vllm_cache_aware", **{option: value})
    assert limit in str(refused.value)
