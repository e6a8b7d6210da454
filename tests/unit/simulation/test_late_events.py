"""cpp/simulation/late_events.h: what the router's own policies hear of simulated caches, and when."""

import numpy as np
import pytest

from tests.fakes.traces import columns
from vllm_router._core import replay

# Arrivals are minutes apart, so that every request finds an idle fleet.
PROMPT = list(range(10, 18))
TOKENS = 16 * len(PROMPT)


def rows(*prompts, every=100.0):
    return columns([(i * every, 16 * len(ids), 4, ids) for i, ids in enumerate(prompts)])


def predicted(trace, delay, fleet=None, **routing):
    routing = {"policy": "auto", "seed": 1, "events_delay_s": delay, **routing}
    result = replay.simulate(trace, routing, {"workers": 2, "cache_blocks": 64, **(fleet or {})})
    return result["predicted_tokens"].tolist(), result["hit_tokens"].tolist(), result["worker"].tolist()


def test_what_is_heard_is_claimed():
    claims, hits, workers = predicted(rows(PROMPT, PROMPT), 0.05)
    assert claims == [0, TOKENS]
    assert hits[1] > 0
    assert workers[0] == workers[1]


def test_events_that_come_too_late_claim_nothing():
    claims, _hits, _workers = predicted(rows(PROMPT, PROMPT), 1e6)
    assert claims == [0, 0]  # the prediction of the first has lapsed long before


def test_what_was_sent_is_predicted_until_the_events_come():
    claims, _, workers = predicted(rows(PROMPT, PROMPT, every=0.1), 1e6)
    assert claims == [0, TOKENS]
    assert workers[0] == workers[1]


def test_a_wiped_cache_is_known_to_be_empty():
    fleet = {"events": [{"time_s": 50.0, "kind": "wipe", "worker": worker} for worker in range(2)]}
    assert predicted(rows(PROMPT, PROMPT), 0.05, fleet)[0] == [0, 0]
    # Without events the router believes what it sent.
    routing = {"policy": "auto", "seed": 1}
    result = replay.simulate(rows(PROMPT, PROMPT), routing, {"workers": 2, "cache_blocks": 64, **fleet})
    assert result["predicted_tokens"].tolist() == [0, TOKENS]


def test_evicted_blocks_are_not_claimed():
    others = [list(range(1000 * i, 1000 * i + 30)) for i in range(1, 9)]
    claims, hits, _ = predicted(rows(PROMPT, *others, PROMPT), 0.05)
    assert (claims[-1], hits[-1]) == (0, 0)


def test_one_router_hears_what_another_sent():
    trace = rows(*[PROMPT] * 20)
    claims, _, workers = predicted(trace, 0.05, routers=4)
    assert claims == [0, *[TOKENS] * 19]
    assert len(set(workers)) == 1
    alone = replay.simulate(
        trace, {"policy": "auto", "seed": 1, "routers": 4}, {"workers": 2, "cache_blocks": 64}
    )
    assert alone["predicted_tokens"].tolist().count(0) == 4  # each learns for itself


def test_a_worker_that_fails_and_joins_again_is_empty_and_heard():
    fleet = {
        "workers": 1,
        "events": [
            {"time_s": 50.0, "kind": "fail", "worker": 0},
            {"time_s": 60.0, "kind": "join", "worker": 0},
        ],
    }
    assert predicted(rows(PROMPT, PROMPT, PROMPT), 0.05, fleet)[0] == [0, 0, TOKENS]


def test_claims_follow_the_caches_whatever_the_traffic():
    """With events at once, each claim is the hit that the engine reports."""
    rng = np.random.default_rng(7)
    stems = [list(range(100 * i, 100 * i + 12)) for i in range(1, 12)]
    prompts = [stems[rng.integers(11)] + [10_000 + i, 20_000 + i] for i in range(300)]
    claims, hits, _ = predicted(rows(*prompts, every=40.0), 0.0, {"workers": 3, "cache_blocks": 90})
    assert claims == hits
    assert sum(hits) > 0


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware", "consistent_hash"])
def test_a_policy_that_matches_no_blocks_hears_no_events(policy):
    with pytest.raises(ValueError, match=f"the policy {policy} matches no blocks and hears no KV events"):
        predicted(rows(PROMPT), 0.05, policy=policy)
