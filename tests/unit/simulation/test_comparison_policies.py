"""cpp/simulation/comparison_policies.h: each does what its source does, weaknesses included."""

import numpy as np
import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router._core import replay
from vllm_router.replay import Fleet, generate

BLOCK = 16
FLEET = {"workers": 4, "cache_blocks": 1000}


def run(policy: str, requests: list[tuple[float, int, list[int]]], fleet: dict = FLEET, **routing) -> dict:
    """Of (arrival, output tokens, block ids); prompts are as long as their blocks."""
    trace = {
        "arrival_s": np.array([r[0] for r in requests], dtype=np.float64),
        "input_tokens": np.array([BLOCK * len(r[2]) for r in requests], dtype=np.uint32),
        "output_tokens": np.array([r[1] for r in requests], dtype=np.uint32),
        "block_ids": np.array([block for r in requests for block in r[2]], dtype=np.uint64),
        "block_offsets": np.cumsum([0, *(len(r[2]) for r in requests)], dtype=np.int64),
        "block_size": BLOCK,
    }
    return replay.simulate(trace, {"policy": policy, "seed": 1, **routing}, fleet)


def workers(*arguments, **routing) -> list[int]:
    return run(*arguments, **routing)["worker"].tolist()


@for_each_row("policy", replay.comparison_policies)
def test_no_router_offers_them(policy):
    with pytest.raises(ValueError, match=policy):
        Router(policy=policy)


@for_each_row("policy", replay.comparison_policies)
def test_a_prompt_goes_back_to_an_idle_worker_that_has_it(policy):
    prompts = [list(range(100 * i, 100 * i + 20)) for i in range(3)]
    asked = [(float(10 * i), 2, prompts[i % 3]) for i in range(9)]
    chosen = workers(policy, asked)
    assert chosen[3:6] == chosen[:3]
    assert chosen[6:] == chosen[:3]


def test_the_reference_gives_an_even_fleets_misses_to_the_first():
    asked = [(float(i), 2, [100 * i + 1, 100 * i + 2]) for i in range(8)]
    assert set(workers("compare_cache_aware_reference", asked)) == {0}


@pytest.mark.parametrize(
    ("policy", "threshold"),
    [("compare_cache_aware_reference", 0.3), ("compare_cache_aware_documented", 0.5)],
)
def test_the_reference_follows_a_match_above_its_threshold(policy, threshold):
    first = (0.0, 4000, list(range(1, 11)))  # worker 0 is busy with it for long
    shared = [list(range(1, n + 1)) + [1000 + 20 * n + i for i in range(10 - n)] for n in range(1, 10)]
    for n, prompt in enumerate(shared, start=1):
        assert workers(policy, [first, (1.0, 2, prompt)])[1] == (0 if n / 10 > threshold else 1)


def test_the_reference_balances_while_the_fleet_is_uneven():
    burst = [(0.001 * i, 4000, [1, 2, 3, i + 10]) for i in range(200)]
    chosen = workers("compare_cache_aware_reference", burst, {**FLEET, "cache_blocks": 100_000})
    assert chosen[:60] == [0] * 60
    assert len(set(chosen)) == 4


def test_smg_takes_the_least_loaded_of_all_holders():
    events = [{"time_s": 5.0, "kind": "join", "worker": 1}]
    asked = [(float(i), 4000, list(range(1, 11))) for i in range(1, 9)]
    chosen = workers(
        "compare_smg",
        [*asked, (20.0, 2, list(range(1, 11)))],
        {"workers": 2, "cache_blocks": 100_000, "events": events},
    )
    assert set(chosen) == {0}  # it never recruits another holder
    assert chosen[-1] == 0


def test_lmetric_and_dynamo_weigh_the_queue_against_the_match():
    # Worker w holds the prompt and has much to do; another one computes it sooner.
    hot = list(range(1, 21))
    load = [(10.0 + 0.001 * i, 500, [*hot, 1000 + i]) for i in range(40)]
    for policy in ("compare_lmetric", "compare_dynamo"):
        assert len(set(workers(policy, [(0.0, 2, hot), *load]))) > 1


def test_the_second_version_leaves_a_busy_holder_that_auto_does_not_leave():
    trace = generate("demo", 1, 60)
    fleet = Fleet(workers=3, engine="demo", cache_tokens=10_240).as_core(trace)
    second, own = (
        replay.simulate(trace.as_core(), {"policy": policy, "seed": 1, "max_blocks_per_worker": 640}, fleet)
        for policy in ("compare_auto_v2", "auto")
    )
    assert second["hit_tokens"].sum() < 0.97 * own["hit_tokens"].sum()


def test_the_second_version_keeps_room_for_responses_and_the_first_one_does_not():
    small = {"workers": 1, "cache_blocks": 60}
    prompts = [list(range(100 * i, 100 * i + 20)) for i in range(2)]
    asked = [(100.0 * i, 400, prompts[i % 2]) for i in range(6)]  # 25 blocks of a response
    first, second = (
        run(policy, asked, small, max_blocks_per_worker=60)
        for policy in ("compare_auto_v1", "compare_auto_v2")
    )
    assert first["predicted_tokens"][-1] == 320
    assert second["predicted_tokens"][-1] < 320


def test_seed_000_leaves_a_holder_above_the_mean():
    hot = list(range(1, 21))
    load = [(10.0 + 0.001 * i, 500, hot) for i in range(40)]
    counts = np.bincount(workers("compare_seed_000", [(0.0, 2, hot), *load]), minlength=4)
    assert counts.min() >= 5


def test_seed_004_never_leaves_a_holder_that_all_share():
    # 0.6 for the match outweighs any load: the trap of a prefix that every request begins with.
    asked = [(0.01 * i, 100, [1, 1000 + 2 * i, 1001 + 2 * i]) for i in range(100)]
    counts = np.bincount(workers("compare_seed_004", asked), minlength=4)
    assert counts.max() >= 97


@pytest.mark.parametrize("policy", ["compare_lmetric", "compare_dynamo", "compare_auto_v2"])
def test_events_know_what_was_evicted(policy):
    small = {"workers": 1, "cache_blocks": 30}
    prompts = [list(range(100 * i, 100 * i + 20)) for i in range(2)]
    asked = [(10.0 * i, 2, prompts[i % 2]) for i in range(4)]
    learned = run(policy, asked, small, max_blocks_per_worker=1000)
    told = run(policy, asked, small, events_delay_s=0.05)
    assert learned["predicted_tokens"][2] == 320
    assert told["predicted_tokens"][2] == told["hit_tokens"][2] < 320
