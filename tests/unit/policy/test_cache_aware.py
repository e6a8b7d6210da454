"""cpp/policy/cache_aware.h: the documents' examples, checks and options. Random stories: tests/property."""

import random

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

WORKERS = [f"http://w{i}:8000" for i in range(1, 4)]
BASE = b"".join(b"%06d" % i for i in range(400))


def fleet(workers=3, **options):
    policy = testing.PolicyHarness("cache_aware", seed=options.pop("seed", 1), **options)
    for i in range(1, workers + 1):
        policy.add(f"http://w{i}:8000")
    return policy


def load(policy, *loads):
    for url, requests in zip(policy.urls, loads, strict=True):
        policy.set_load(url, requests)


def teach(policy, worker, prompt, **how):
    """Only this worker may be chosen."""
    others = [i for i in range(len(policy.urls)) if i != worker]
    assert policy.choose_prompt(prompt, tried=others, **how)[0] == worker


def of_the_documents(**options):
    """w1 saw 600 of the prompt's 1000 bytes, w2 saw 200, w3 nothing."""
    policy = fleet(**options)
    teach(policy, 0, BASE[:600])
    teach(policy, 1, BASE[:200])
    return policy


@pytest.mark.parametrize(
    ("loads", "options", "expected"),
    [
        ((60, 3, 2), {}, (0, "prefix_hit", 600, 1000)),  # 58 <= 64
        ((70, 3, 2), {}, (2, "load_balance", 0, 1000)),  # 68 > 64 and 70 > 3
        ((5, 70, 2), {}, (0, "prefix_hit", 600, 1000)),  # the holder is not the hot one
        ((5, 70, 2), {"balance_gate": "fleet"}, (2, "load_balance", 0, 1000)),
        ((66, 3, 2), {}, (0, "prefix_hit", 600, 1000)),  # 64 is not more than 64
        ((67, 3, 2), {}, (2, "load_balance", 0, 1000)),
        ((300, 200, 200), {}, (0, "prefix_hit", 600, 1000)),  # 300 is not more than 1.5 * 200
        ((301, 200, 201), {}, (1, "load_balance", 200, 1000)),
    ],
)
def test_the_documents_example(loads, options, expected):
    policy = of_the_documents(**options)
    load(policy, *loads)
    assert policy.choose_prompt(BASE[:1000]) == expected


def test_a_match_must_be_longer_than_the_threshold():
    policy = fleet()
    teach(policy, 0, BASE[:300])
    load(policy, 1, 1, 0)
    assert policy.choose_prompt(BASE[:1000]) == (2, "prefix_miss", 0, 1000)
    policy = fleet()
    teach(policy, 0, BASE[:301])
    load(policy, 1, 1, 0)
    assert policy.choose_prompt(BASE[:1000]) == (0, "prefix_hit", 301, 1000)


def test_at_threshold_1_load_alone_decides():
    policy = fleet(cache_threshold=1.0)
    for turn in range(30):
        load(policy, *(int(i != turn % 3) for i in range(3)))
        assert policy.choose_prompt(BASE[:500])[:2] == (turn % 3, "prefix_miss")


def test_prompts_shorter_than_a_block_are_spread():
    """mending row 36: 48 equal short chats went 48:0 to one worker of two, although no engine caches them."""
    for prompt, how in ((b"\x1euser\x1fHello! Who are you?", {"framed": True}), ([1, 2, 3, 4] * 3, {})):
        policy, open_requests = fleet(2), [0, 0]
        for _ in range(48):
            load(policy, *open_requests)
            position, reason, *_ = policy.choose_prompt(prompt, **how)
            assert reason == "prefix_miss"
            open_requests[position] += 1
        assert open_requests == [24, 24]


def test_what_is_shared_must_be_a_block():
    for shared, reason in ((63, "prefix_miss"), (64, "prefix_hit")):
        policy = fleet()
        teach(policy, 0, BASE[:shared])
        load(policy, 1, 0, 0)
        assert policy.choose_prompt(BASE[:100])[1] == reason


def test_a_repeated_prompt_sticks():
    policy = fleet()
    first = policy.choose_prompt(BASE[:200], framed=True)[0]
    for _ in range(30):
        assert policy.choose_prompt(BASE[:200], framed=True) == (first, "prefix_hit", 200, 200)


def turns_of(user, count, system="You are a helpful assistant. " * 60):
    """The texts of a chat's turns."""
    text = f"\x1esystem\x1f{system}"
    for turn in range(count):
        text += f"\x1euser\x1fThis is {user}, and my question number {turn} is about {user * 7}."
        yield text.encode()
        text += f"\x1eassistant\x1fThe answer to {user}'s question {turn} is {turn}."


@pytest.mark.parametrize("scope", [b"", b"model\0"])
def test_a_chat_stays_and_a_shared_system_prompt_spreads(scope):
    policy = fleet(4)
    homes, counts = {}, [0] * 4
    chats = {user: list(turns_of(f"user-{user}", 6)) for user in range(40)}
    for turn in range(6):
        for user in random.Random(turn).sample(range(40), 40):
            position, reason, *_ = policy.choose_prompt(
                scope + chats[user][turn], framed=True, scope=len(scope)
            )
            counts[position] += 1
            if turn:
                assert (position, reason) == (homes[user], "prefix_hit")
            homes[user] = position
    assert max(counts) <= 1.5 * sum(counts) / 4


def test_without_spreading_one_worker_gets_all_who_share_a_system_prompt():
    policy = fleet(4, spread_new_conversations=False)
    chosen = {policy.choose_prompt(next(turns_of(f"user-{user}", 1)), framed=True)[0] for user in range(40)}
    assert len(chosen) == 1


def test_a_prefix_gets_workers_by_its_share_of_beginnings():
    policy = fleet(8)
    dice = random.Random(5)
    systems = [f"Tenant {i}. " + "".join(dice.choices("abcdefgh ", k=2400)) for i in range(150)]
    holders = [set() for _ in systems]
    for number in range(600):
        tenant = number % 150
        text = f"\x1esystem\x1f{systems[tenant]}\x1euser\x1fquestion {number}".encode()
        holders[tenant].add(policy.choose_prompt(text, framed=True)[0])
    assert sum(map(len, holders)) == 150


def test_after_twenty_starts_per_worker_nobody_has_more_than_half_above_its_share():
    policy = fleet(5)
    counts = [0] * 5
    for user in range(100):
        counts[policy.choose_prompt(next(turns_of(f"user-{user}", 1)), framed=True)[0]] += 1
    assert max(counts) <= 1.5 * 20


def test_who_is_not_eligible_is_not_counted_and_the_next_best_takes_over():
    policy = of_the_documents()
    policy.set_healthy(WORKERS[0], False)
    assert policy.choose_prompt(BASE[:400]) == (1, "prefix_hit", 200, 400)
    policy.set_healthy(WORKERS[0], True)
    assert policy.choose_prompt(BASE[:400])[:2] in ((0, "prefix_hit"), (1, "prefix_hit"))


def test_a_worker_that_left_is_forgotten_and_comes_back_with_nothing():
    policy = of_the_documents()
    policy.remove(WORKERS[0])
    policy.add(WORKERS[0])
    assert policy.choose_prompt(BASE[:700], tried=[0, 1]) == (2, "prefix_miss", 0, 700)


def test_ids_are_matched_in_whole_pages():
    policy = fleet(spread_new_conversations=False)
    ids = list(range(100))
    teach(policy, 1, ids)
    load(policy, 0, 5, 0)
    assert policy.choose_prompt([*ids[:40], 7, 7]) == (1, "prefix_hit", 32, 42)
    assert policy.choose_prompt(ids[:15])[1:] == ("prefix_miss", 0, 15)


def test_a_model_keeps_its_prompts_to_itself():
    policy = fleet()
    teach(policy, 1, b"m\0" + BASE[:500], scope=2)
    load(policy, 0, 5, 0)
    assert policy.choose_prompt(b"m\0" + BASE[:500], scope=2) == (1, "prefix_hit", 500, 500)
    assert policy.choose_prompt(b"n\0" + BASE[:500], scope=2)[1:] == ("prefix_miss", 0, 500)
    assert policy.choose_prompt(BASE[:500])[1:] == ("prefix_miss", 0, 500)


@pytest.mark.parametrize("prompt", [b"", []])
def test_an_empty_prompt_is_a_miss_and_nothing_is_learned(prompt):
    policy = fleet()
    load(policy, 1, 0, 1)
    assert policy.choose_prompt(prompt) == (1, "prefix_miss", 0, 0)
    assert policy.stats()["cache_routing"]["bytes"] == 0


def test_without_a_prompt_the_fallback_policy_decides():
    policy = fleet()
    load(policy, 1, 0, 1)
    assert policy.choose_prompt(None) == (1, "fallback", 0, 0)


def test_a_miss_goes_to_the_least_loaded_or_to_the_smallest_tree():
    for choice, expected in (("least_load", 1), ("smallest_tree", 2)):
        policy = fleet(miss_choice=choice)
        teach(policy, 0, BASE[:900])
        teach(policy, 1, BASE[:100])
        load(policy, 3, 0, 5)
        assert policy.choose_prompt(b"something else altogether")[:2] == (expected, "prefix_miss")


def test_among_equal_loads_the_one_that_was_sent_least_is_taken():
    policy = fleet()
    teach(policy, 0, BASE[:900])
    teach(policy, 2, BASE[100:200])
    assert policy.choose_prompt(b"something else altogether")[:2] == (1, "prefix_miss")


def test_weights_count_in_the_gate():
    policy = testing.PolicyHarness("cache_aware", balance_abs_threshold=4, balance_rel_threshold=1000)
    policy.add(WORKERS[0], weight=10.0)
    policy.add(WORKERS[1])
    teach(policy, 0, BASE[:500])
    load(policy, 50, 1)  # 5 per weight against 1
    assert policy.choose_prompt(BASE[:500])[:2] == (0, "prefix_hit")
    load(policy, 51, 1)
    assert policy.choose_prompt(BASE[:500])[:2] == (1, "load_balance")


def test_three_predictions_in_a_row_that_meet_nothing_empty_the_worker():
    policy = of_the_documents()
    before = policy.cache_sizes()
    for cached in (0, 0, 16, 0, 0):
        policy.observe(0, 600, "bytes", cached)
    policy.observe(0, 255, "bytes", 0)  # less than four blocks tells nothing
    policy.observe(0, 600, "bytes", None)  # nor does an answer without a count
    assert policy.cache_sizes() == before
    policy.observe(0, 600, "bytes", 0)
    stats = policy.stats()["cache_routing"]
    assert policy.cache_sizes() == [0, *before[1:]]
    assert stats["guessed_restarts"] == 1
    assert stats["predicted_tokens"] == 6 * 150 + 63
    assert stats["reported_tokens"] == 16


def test_nothing_cached_says_nothing_where_never_more_was_reported():
    """Row 23: engines report 0 at all times, or at some endpoints; every fourth turn was forgotten."""
    policy = of_the_documents()
    before = policy.cache_sizes()
    policy.observe(0, 600, "bytes", 16, endpoint=1)
    for _ in range(20):
        policy.observe(0, 600, "bytes", 0)
        policy.observe(1, 600, "bytes", 0, endpoint=1)  # what worker 0 reported says nothing of worker 1
    assert (policy.cache_sizes(), policy.stats()["cache_routing"]["guessed_restarts"]) == (before, 0)
    for _ in range(3):
        policy.observe(0, 600, "bytes", 0, endpoint=1)
    assert policy.cache_sizes() == [0, *before[1:]]
    for _ in range(3):  # since its start it has reported nothing
        policy.observe(0, 600, "bytes", 0, endpoint=1)
    assert policy.stats()["cache_routing"]["guessed_restarts"] == 1


def test_it_counts_hits_misses_and_what_the_gate_moved():
    policy = of_the_documents()  # two misses
    load(policy, 70, 3, 2)
    policy.choose_prompt(BASE[:1000])
    load(policy, 0, 0, 0)
    policy.choose_prompt(BASE[:1000])
    stats = policy.stats()["cache_routing"]
    assert (stats["hits"], stats["misses"], stats["load_balancing"]) == (1, 2, 1)


def test_it_reads_the_prompt_its_size_and_what_its_fallback_reads():
    assert testing.PolicyHarness("cache_aware", fallback_policy="random").needs == 32 | 4


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("cache_threshold", 1.5, r"cache_threshold is 1.5.*; it is a share of the prompt .* between 0 and 1"),
        ("balance_rel_threshold", 999, "balance_rel_threshold is 0.999; .* at least 1"),
        ("max_tree_size", 1023, "max_tree_size is 1023; .* at least 1024"),
        ("eviction_interval_secs", 0, "eviction_interval_secs is 0; .* at least 1"),
        ("eviction_policy", "lur", 'eviction_policy is "lur"; .* lru, lfu, fifo, mru, filo, priority'),
        ("balance_gate", "none", 'balance_gate is "none"; it must be one of worker, fleet'),
        ("miss_choice", "x", 'miss_choice is "x"; it must be one of least_load, smallest_tree'),
    ],
)
def test_options_have_limits(option, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        testing.PolicyHarness("cache_aware", **{option: value})


# In a Router


def chat(user, turn, model="m"):
    messages = [{"role": "system", "content": "You are kind."}]
    for past in range(turn + 1):
        messages.append({"role": "user", "content": f"I am {user * 20} and ask {past}"})
        messages.append({"role": "assistant", "content": f"To {user}: {past}"})
    return {"model": model, "messages": messages[:-1]}


def test_a_router_keeps_chats_together():
    router = Router("cache_aware", WORKERS, seed=1)
    homes = {}
    for turn in range(4):
        for user in range(12):
            with router.select(chat(f"user {user}", turn)) as ticket:
                assert ticket.unit == "bytes"
                assert homes.setdefault(user, ticket.worker_url) == ticket.worker_url
                assert ticket.reason == "prefix_hit" or turn == 0
    assert len(set(homes.values())) == 3


def test_what_is_matched_is_not_counted_as_queued_prefill():
    router = Router("cache_aware", WORKERS[:1])
    router.select(prompt="x" * 4000).finish()
    with router.select(prompt="x" * 4000 + "y" * 400):
        assert router.workers[0].queued_prefill_tokens == 100
        assert router.workers[0].context_tokens == 1100


def test_batches_of_prompts_and_of_ids():
    import numpy as np

    router = Router("cache_aware", WORKERS, seed=1)
    prompts = [f"{i % 3} " * 100 for i in range(9)]
    with router.select_batch(prompts) as batch:
        assert batch.total.tolist() == [200] * 9
        assert batch.matched.tolist() == [0] * 3 + [200] * 6
        assert batch.workers.tolist() == batch.workers.tolist()[:3] * 3
    ids = np.repeat(np.arange(3, dtype=np.uint32), 32)
    offsets = np.arange(0, 97, 32, dtype=np.int64)
    router.select_batch(token_ids=ids, offsets=offsets).finish()
    with router.select_batch(token_ids=ids, offsets=offsets) as batch:
        assert batch.matched.tolist() == [32] * 3


def test_models_do_not_share_prompts():
    router = Router("cache_aware", WORKERS[:1])
    router.select(chat("ann", 3)).finish()
    with router.select(chat("ann", 3, model="other")) as ticket:
        assert (ticket.reason, ticket.matched) == ("prefix_miss", 0)
    with router.select(chat("ann", 3)) as ticket:
        assert (ticket.reason, ticket.matched) == ("prefix_hit", ticket.total)
