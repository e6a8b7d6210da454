"""cpp/simulation/replay.h, through `_core.replay.simulate`."""

import importlib.util
import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.traces import columns
from tests.models.engine import Options
from tests.models.staged_replay import Served, StagedFleet
from vllm_router._core import replay
from vllm_router.settings.policies import BLOCK_POLICIES

DATA = Path(__file__).parents[2] / "data" / "mooncake_conversation_200.jsonl"
SCRIPT = Path(__file__).parents[3] / "scripts" / "replay_golden.py"
# 10 ms a step, 0.1 ms a prompt token, nothing else.
PLAIN = {
    "step_ms": 10,
    "prefill_us_per_token": 100,
    "attention_ns_per_token2": 0,
    "decode_us_per_sequence": 0,
    "context_ns_per_token": 0,
}
FLEET = {"workers": 2, "cache_blocks": 1000, "coefficients": PLAIN}


def conversation(**members) -> dict:
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    requests = [
        (row["timestamp"] / 1000, row["input_length"], row["output_length"], row["hash_ids"]) for row in rows
    ]
    return columns(requests, block_size=512, **members)


def policies() -> list[str]:
    return [
        "random",
        "round_robin",
        "least_load",
        "power_of_two",
        "consistent_hash",
        "rendezvous_hash",
        "prefix_aware",
        "vllm_cache_aware",
        "prefix_hash",
        "auto",
        *replay.comparison_policies,
    ]


def same(a: dict, b: dict) -> bool:
    return all(
        same(a[name], b[name])
        if isinstance(a[name], dict)
        else np.array_equal(a[name], b[name], equal_nan=True)
        if isinstance(a[name], np.ndarray)
        else a[name] == b[name]
        for name in a
    )


def test_one_request_takes_what_the_engine_takes():
    result = replay.simulate(columns([(5.0, 100, 3, range(6))]), {"policy": "round_robin"}, FLEET)
    assert result["ttft_s"] == pytest.approx([0.020])
    assert result["e2e_s"] == pytest.approx([0.040])
    assert result["arrival_s"].tolist() == [5.0]
    assert (result["hit_tokens"].tolist(), result["status"].tolist()) == ([0], [0])
    assert result["span_s"] == pytest.approx(0.040)
    workers = result["workers"]
    assert workers["requests"].tolist() in ([1, 0], [0, 1])
    assert (workers["prompt_tokens"].sum(), workers["output_tokens"].sum(), workers["steps"].sum()) == (
        100,
        3,
        3,
    )
    assert workers["busy_s"].sum() == pytest.approx(0.040)


def test_a_worker_that_was_there_before_has_the_prefix():
    trace = columns(
        [(0.0, 160, 1, range(10)), (1.0, 160, 1, range(10)), (2.0, 160, 1, [0, 1, *range(100, 108)])]
    )
    result = replay.simulate(trace, {"policy": "vllm_cache_aware", "cache_threshold": 0.1}, FLEET)
    assert result["hit_tokens"].tolist() == [0, 144, 32]
    assert result["predicted_tokens"].tolist() == [0, 160, 32]
    assert len(set(result["worker"].tolist())) == 1
    assert result["ttft_s"] == pytest.approx([0.026, 0.0116, 0.0228])


def test_equal_ids_after_different_ones_are_different_blocks():
    trace = columns([(0.0, 32, 1, [1, 2]), (1.0, 32, 1, [3, 2])])
    result = replay.simulate(trace, {"policy": "round_robin"}, {**FLEET, "workers": 1})
    assert result["hit_tokens"].tolist() == [0, 0]


def test_a_later_prompt_hits_the_blocks_of_an_answer():
    trace = columns(
        [(0.0, 32, 32, [1, 2]), (9.0, 80, 1, [1, 2, 3, 4, 5])],
        output_block_ids=np.array([3, 4], dtype=np.uint64),
        output_block_offsets=np.array([0, 2, 2], dtype=np.int64),
    )
    result = replay.simulate(trace, {"policy": "round_robin"}, {**FLEET, "workers": 1})
    assert result["hit_tokens"].tolist() == [0, 64]


def test_sessions_stay_where_they_are():
    trace = columns(
        [(float(i), 16, 2, [i]) for i in range(60)], session_ids=np.arange(60, dtype=np.uint64) % 12
    )
    for policy in ("consistent_hash", "rendezvous_hash"):
        result = replay.simulate(trace, {"policy": policy}, {**FLEET, "workers": 4})
        homes = {(i % 12, worker) for i, worker in enumerate(result["worker"].tolist())}
        assert len(homes) == 12
        assert len({worker for _, worker in homes}) > 1


@pytest.mark.parametrize("policy", policies())
def test_every_policy_serves_the_trace_and_the_same_seed_gives_the_same_bytes(policy):
    trace = conversation()
    routing = {"policy": policy, "seed": 7, "routers": 2}
    fleet = {"workers": 4, "cache_blocks": 600}
    result = replay.simulate(trace, routing, fleet)
    assert (result["status"] == 0).all()
    assert result["workers"]["requests"].sum() == 200
    assert (result["ttft_s"] > 0).all()
    assert (result["e2e_s"] >= result["ttft_s"]).all()
    assert (result["hit_tokens"] < trace["input_tokens"]).all()
    assert same(result, replay.simulate(trace, routing, fleet))


@pytest.mark.parametrize("policy", [*replay.comparison_policies, *BLOCK_POLICIES])
def test_with_events_too_the_same_seed_gives_the_same_bytes(policy):
    routing = {"policy": policy, "seed": 7, "events_delay_s": 0.05}
    fleet = {"workers": 4, "cache_blocks": 600, "events": [{"time_s": 20.0, "kind": "wipe", "worker": 1}]}
    result = replay.simulate(conversation(), routing, fleet)
    assert (result["status"] == 0).all()
    assert same(result, replay.simulate(conversation(), routing, fleet))


def test_another_seed_is_another_run():
    runs = [
        replay.simulate(conversation(), {"policy": "random", "seed": seed}, FLEET)["worker"].tolist()
        for seed in range(2)
    ]
    assert runs[0] != runs[1]


def test_arrivals_are_the_traces_or_scaled_or_poisson():
    trace = columns([(float(i), 16, 1, [i]) for i in range(2000)])
    assert replay.simulate(trace, {}, FLEET)["arrival_s"].tolist() == list(range(2000))
    halved = replay.simulate({**trace, "time_scale": 0.5}, {}, FLEET)
    assert halved["arrival_s"].tolist() == [i / 2 for i in range(2000)]
    gaps = np.diff(replay.simulate({**trace, "poisson_rate": 50.0}, {"seed": 3}, FLEET)["arrival_s"])
    assert gaps.mean() == pytest.approx(0.02, rel=0.1)
    assert gaps.std() == pytest.approx(0.02, rel=0.15)


def test_a_closed_loop_keeps_so_many_under_way():
    trace = columns([(0.0, 16, 1, [i]) for i in range(40)], closed_loop=4)
    result = replay.simulate(trace, {"policy": "round_robin"}, {**FLEET, "workers": 4})
    ends = result["arrival_s"] + result["e2e_s"]
    under_way = [((result["arrival_s"] <= t) & (ends > t)).sum() for t in result["arrival_s"]]
    assert max(under_way) == 4
    assert result["arrival_s"][4:].min() == pytest.approx(ends[:4].min())


# 0 ─▶ 1 (5 s) ─▶ 3 (2 s)
# └──▶ 2 (1 s) ──┘           4 waits for none.
TURNS = {
    "after_rows": np.array([0, 0, 1, 2], dtype=np.int64),
    "after_offsets": np.array([0, 0, 1, 2, 4, 4], dtype=np.int64),
    "pause_s": np.array([9.0, 5.0, 1.0, 2.0, 9.0]),
}


@pytest.mark.parametrize("scale", [1, 2])
def test_a_turn_arrives_a_pause_after_the_last_that_it_waits_for_has_ended(scale):
    # Its own time is only for the order.
    trace = columns([(0.5, 16, 600, [1])] + [(0.5, 16, 2, [1])] * 3 + [(0.7, 16, 2, [1])], **TURNS)
    result = replay.simulate(trace | {"time_scale": float(scale)}, {}, FLEET)
    arrival, end = result["arrival_s"], result["arrival_s"] + result["e2e_s"]
    assert arrival.tolist() == pytest.approx(
        [0.5 * scale, end[0] + 5 * scale, end[0] + scale, end[1] + 2 * scale, 0.7 * scale]
    )
    assert end[1] > end[2]
    assert result["span_s"] == pytest.approx(end[3] - arrival[0])


def test_a_turn_comes_though_the_one_before_it_was_lost():
    trace = columns([(0.0, 16, 600, [1])] + [(0.0, 16, 2, [1])] * 3 + [(0.1, 16, 2, [1])], **TURNS)
    events = [{"kind": "fail", "time_s": 1.0, "worker": 0}]
    result = replay.simulate(trace, {}, {**FLEET, "workers": 1, "events": events})
    assert result["status"].tolist() == [2, 1, 1, 1, 0]  # cut short; no worker is left for those behind it
    assert result["arrival_s"].tolist() == pytest.approx([0, 6, 2, 8, 0.1])


def test_a_faster_worker_is_faster():
    trace = columns([(float(i), 160, 1, []) for i in range(10)])
    result = replay.simulate(trace, {"policy": "round_robin"}, {**FLEET, "speeds": [1.0, 0.5]})
    assert sorted(set(result["ttft_s"].round(6))) == [0.026, 0.052]


def test_a_worker_changes_its_speed_in_the_middle():
    trace = columns([(float(i), 160, 1, []) for i in range(10)])
    events = [{"time_s": 4.5, "kind": "speed", "worker": 0, "speed": 0.5}]
    result = replay.simulate(trace, {}, {**FLEET, "workers": 1, "events": events})
    assert result["ttft_s"].round(6).tolist() == [0.026] * 5 + [0.052] * 5


def test_a_router_sees_no_first_token_of_a_whole_response():
    # Two prompts come while the first one's response is decoded: who takes it for waiting avoids its worker.
    trace = columns([(0.0, 1600, 100, [1]), (0.5, 16, 1, [2]), (0.6, 16, 1, [3])])
    fleet = {**FLEET, "workers": 2}
    streamed = replay.simulate(trace, {"policy": "least_load", "least_load_metric": "tokens"}, fleet)
    whole = replay.simulate(
        trace, {"policy": "least_load", "least_load_metric": "tokens", "streams": False}, fleet
    )
    assert (streamed["ttft_s"] == whole["ttft_s"]).all()
    auto = [
        replay.simulate(trace, {"streams": streams}, fleet)["worker"].tolist() for streams in (True, False)
    ]
    assert auto[1][1] != auto[1][0]


def test_prompts_first_is_slower_for_responses_under_way():
    trace = columns([(0.0, 160, 20, []), (0.05, 1600, 1, [])])
    fleets = [{**FLEET, "workers": 1, "prompts_first": first} for first in (False, True)]
    chunked, first = (replay.simulate(trace, {}, fleet) for fleet in fleets)
    assert first["e2e_s"][0] > chunked["e2e_s"][0]
    assert first["ttft_s"][1] == chunked["ttft_s"][1]


def test_a_worker_that_fails_loses_its_requests_and_they_are_sent_again():
    trace = columns([(0.0, 160, 500, []), (0.0, 160, 500, []), (1.0, 16000, 1, []), (1.0, 16000, 1, [])])
    fleet = {**FLEET, "events": [{"time_s": 1.2, "kind": "fail", "worker": 1}]}
    result = replay.simulate(trace, {"policy": "round_robin"}, fleet)
    assert sorted(result["status"].tolist()[:2]) == [0, 2]
    assert result["status"].tolist()[2:] == [0, 0]
    cut = result["status"].tolist().index(2)
    assert np.isnan(result["e2e_s"][cut])
    assert result["ttft_s"][cut] > 0
    assert set(result["worker"][2:]) == {0}
    assert result["workers"]["requests"].tolist() == [3, 0]


def test_with_nobody_there_a_request_is_refused():
    trace = columns([(0.0, 16, 1, []), (2.0, 16, 1, []), (4.0, 16, 1, [])])
    events = [{"time_s": 1.0, "kind": "fail", "worker": 0}, {"time_s": 3.0, "kind": "join", "worker": 0}]
    result = replay.simulate(trace, {}, {**FLEET, "workers": 1, "events": events})
    assert result["status"].tolist() == [0, 1, 0]
    assert result["worker"].tolist() == [0, -1, 0]
    assert np.isnan(result["ttft_s"][1])


def test_one_that_joins_first_was_not_there_and_comes_with_an_empty_cache():
    trace = columns([(float(i), 160, 1, range(10)) for i in range(6)])
    events = [{"time_s": 2.5, "kind": "join", "worker": 1}]
    result = replay.simulate(trace, {"policy": "round_robin"}, {**FLEET, "events": events})
    assert result["worker"].tolist()[:3] == [0, 0, 0]
    assert set(result["worker"].tolist()[3:]) == {0, 1}
    assert (result["hit_tokens"] == 0).sum() == 2


def test_a_wipe_empties_the_cache_and_a_drained_worker_gets_nothing_new():
    trace = columns([(float(i), 160, 1, range(10)) for i in range(4)])
    wipe = {"time_s": 1.5, "kind": "wipe", "worker": 0}
    result = replay.simulate(trace, {}, {**FLEET, "workers": 1, "events": [wipe]})
    assert result["hit_tokens"].tolist() == [0, 144, 0, 144]
    drain = {"time_s": 1.5, "kind": "drain", "worker": 0}
    result = replay.simulate(trace, {"policy": "round_robin"}, {**FLEET, "events": [drain]})
    assert set(result["worker"].tolist()[2:]) == {1}


def test_replicas_do_not_know_of_each_other():
    trace = columns([(0.0, 160, 100, []) for _ in range(40)])
    one = replay.simulate(trace, {"policy": "least_load"}, {**FLEET, "workers": 4})
    four = replay.simulate(trace, {"policy": "least_load", "routers": 4}, {**FLEET, "workers": 4})
    assert set(one["workers"]["requests"].tolist()) == {10}
    assert set(four["workers"]["requests"].tolist()) != {10}
    sessions = {**trace, "session_ids": np.zeros(40, dtype=np.uint64)}
    kept = replay.simulate(
        sessions, {"policy": "least_load", "routers": 4, "by_session": True}, {**FLEET, "workers": 4}
    )
    assert set(kept["workers"]["requests"].tolist()) == {10}


def spread(routing, policy="least_load"):
    """Forty long requests for four workers, that come to any of four routers."""
    trace = columns([(i / 5, 160, 5000, []) for i in range(40)])
    routing = {"policy": policy, "routers": 4, **routing}
    return sorted(replay.simulate(trace, routing, {**FLEET, "workers": 4})["workers"]["requests"].tolist())


def unevenness(requests):
    return requests[-1] - requests[0]


def test_routers_that_tell_each_other_their_loads_share_the_fleet_evenly():
    apart, told = spread({}), spread({"peer_sync": {"interval_s": 0.05}})
    assert unevenness(told) <= 1 < unevenness(apart)
    assert spread({"peer_sync": {"interval_s": 0.05, "loss": 1.0}}) == apart


def turns():
    """One conversation after the other over and over, each time by another router."""
    prompts = [[100 * talk + block for block in range(20)] for talk in range(6)]
    return columns([(float(i), 320, 1, prompts[i % 6]) for i in range(120)])


def hits(**routing):
    routing = {"policy": "auto", "routers": 4, "seed": 3, **routing}
    return int(replay.simulate(turns(), routing, {**FLEET, "workers": 4})["hit_tokens"].sum())


def test_routers_that_tell_each_other_their_decisions_find_each_others_caches():
    one, apart = hits(routers=1), hits()
    assert apart < hits(peer_sync={}) <= one
    assert hits(peer_sync={"stride_tokens": 16}) == one  # to a block
    assert hits(peer_sync={"decisions_delay_s": 3600.0}) <= apart  # none ever comes


def test_routers_that_are_cut_off_agree_without_a_word():
    """After five seconds each assumes the same holder of a prompt."""
    assert hits() < hits(peer_sync={"cuts": [{"time_s": 0.0, "router": -1}]})


def test_a_router_that_comes_back_reads_what_it_missed():
    away = {"time_s": 0.0, "seconds": 20.0, "router": 1}
    assert hits(peer_sync={"cuts": [{**away, "seconds": 1e9}]}) < hits(peer_sync={"cuts": [away]})


def test_what_routers_tell_is_counted():
    result = replay.simulate(turns(), {"policy": "auto", "routers": 2, "peer_sync": {}}, FLEET)
    span = result["span_s"]
    assert result["peer_sync_frames"] == pytest.approx(2 * 4 * span, abs=10)
    assert result["peer_sync_bytes"] > result["peer_sync_frames"] * 48
    alone = replay.simulate(turns(), {"policy": "auto", "routers": 2}, FLEET)
    assert (alone["peer_sync_frames"], alone["peer_sync_bytes"]) == (0, 0)


# 0.1 ms a token, and 2 ms.
STAGES = {
    "prefill": 1,
    "prefill_cache_blocks": 1000,
    "kv_bytes_per_token": 1e6,
    "link_gb_per_s": 10.0,
    "transfer_ms": 2.0,
}
PAIR = {**FLEET, "stages": STAGES}


def test_a_pair_takes_prefill_and_transfer_and_a_step_of_decode():
    result = replay.simulate(columns([(5.0, 100, 3, range(6))]), {"policy": "round_robin"}, PAIR)
    assert result["ttft_s"] == pytest.approx([0.020 + 0.012 + 0.0101])
    assert result["e2e_s"] == pytest.approx([0.0621])
    assert (result["prefill_worker"].tolist(), result["worker"].tolist()) == ([0], [1])
    assert (result["hit_tokens"].tolist(), result["fetched_tokens"].tolist()) == ([0], [100])
    workers = {name: values.tolist() for name, values in result["workers"].items()}
    assert (workers["requests"], workers["prompt_tokens"]) == ([1, 1], [100, 100])
    assert (workers["computed_tokens"], workers["fetched_tokens"]) == ([100, 1], [0, 100])
    assert (workers["output_tokens"], workers["held_blocks"]) == ([0, 3], [0, 0])


def test_decode_fetches_only_what_it_has_not():
    trace = columns([(0.0, 100, 3, range(6)), (1.0, 164, 3, range(10))])
    result = replay.simulate(trace, {"policy": "auto"}, PAIR)
    assert result["hit_tokens"].tolist() == [0, 96]
    assert result["fetched_tokens"].tolist() == [100, 68]
    assert result["ttft_s"][1] == pytest.approx(0.010 + 0.0068 + 0.0068 + 0.002 + 0.0101)


@pytest.mark.parametrize(("threshold", "alone"), [(15, False), (16, True)])
def test_a_request_of_which_decode_has_most_bypasses_prefill(threshold, alone):
    trace = columns([(0.0, 100, 3, range(6)), (1.0, 112, 3, range(7))])
    result = replay.simulate(trace, {"policy": "auto", "pd_bypass_uncached_tokens": threshold}, PAIR)
    assert result["prefill_worker"].tolist() == [0, -1 if alone else 0]
    assert result["fetched_tokens"].tolist() == [100, 0 if alone else 16]
    assert (result["hit_tokens"].tolist(), result["predicted_tokens"].tolist()) == ([0, 96], [0, 96])
    if alone:
        assert result["ttft_s"][1] == pytest.approx(0.0116)


def test_decode_has_a_prompt_once_it_has_a_token():
    trace = columns([(at, 96, 3, range(6)) for at in (0.0, 0.03, 5.0)])
    routing = {"policy": "auto", "pd_bypass_uncached_tokens": 50}
    assert replay.simulate(trace, routing, PAIR)["prefill_worker"].tolist() == [0, 0, -1]


def test_too_much_that_waits_at_decode_needs_prefill():
    trace = columns([(0.0, 40, 3, [1, 2]), (0.001, 40, 3, [3, 4]), (0.002, 40, 3, [5, 6])])
    routing = {"policy": "auto", "pd_bypass_uncached_tokens": 40, "pd_bypass_queued_tokens": 100}
    assert replay.simulate(trace, routing, PAIR)["prefill_worker"].tolist() == [-1, -1, 0]


def test_with_kv_events_the_bypass_counts_a_responses_blocks():
    trace = columns(
        [(0.0, 32, 32, [1, 2]), (9.0, 80, 1, [1, 2, 3, 4, 5])],
        output_block_ids=np.array([3, 4], dtype=np.uint64),
        output_block_offsets=np.array([0, 2, 2], dtype=np.int64),
    )
    routing = {"policy": "auto", "pd_bypass_uncached_tokens": 16}
    assert replay.simulate(trace, routing, PAIR)["prefill_worker"].tolist() == [0, 0]
    told = replay.simulate(trace, {**routing, "events_delay_s": 0.05}, PAIR)
    assert told["prefill_worker"].tolist() == [0, -1]
    assert told["hit_tokens"].tolist() == [0, 64]


def test_a_link_carries_one_transfer_at_a_time():
    trace = columns([(0.0, 100, 3, range(6)), (0.0, 100, 3, range(10, 16))])
    fleet = {**PAIR, "workers": 3, "stages": {**STAGES, "prefill": 2}}
    result = replay.simulate(trace, {"policy": "round_robin"}, fleet)
    assert sorted(result["ttft_s"]) == pytest.approx([0.0421, 0.0522])


def test_prefill_holds_blocks_until_they_are_fetched():
    trace = columns([(0.0, 100, 3, range(6)), (0.0, 100, 3, range(10, 16))])
    fleet = {**PAIR, "stages": {**STAGES, "prefill_cache_blocks": 7}}
    result = replay.simulate(trace, {"policy": "round_robin"}, fleet)
    # The second is computed from 32 to 52 ms. Decode admits it behind the step that ends at 52.1 ms.
    assert result["ttft_s"] == pytest.approx([0.0421, 0.0521 + 0.012 + 0.0101])


def test_a_local_prefill_slows_the_responses_of_its_worker():
    trace = columns([(0.0, 32, 100, []), (0.5, 2000, 2, [])])
    ends = [
        replay.simulate(trace, {"policy": "auto", "pd_bypass_uncached_tokens": threshold}, PAIR)["e2e_s"][0]
        for threshold in (32, 2000)
    ]
    assert ends[1] - ends[0] == pytest.approx(0.2, abs=0.001)  # 2,000 tokens of prompt, 0.1 ms each


def staged(prefill: int, decode: int, **members) -> dict:
    stages = {**STAGES, "prefill": prefill, "prefill_cache_blocks": 500, "kv_bytes_per_token": 262144.0}
    return {"workers": prefill + decode, "cache_blocks": 600, "stages": stages, **members}


@pytest.mark.parametrize("policy", ["round_robin", "power_of_two", "prefix_aware", "auto"])
@pytest.mark.parametrize("threshold", [0, 256, 1024, 100_000])
def test_of_two_stages_nothing_is_lost_and_nothing_is_held_at_the_end(policy, threshold):
    trace = conversation()
    routing = {"policy": policy, "seed": 7, "pd_bypass_uncached_tokens": threshold}
    result = replay.simulate(trace, routing, staged(2, 3))
    assert same(result, replay.simulate(trace, routing, staged(2, 3)))
    inputs, outputs = trace["input_tokens"].astype(np.int64), trace["output_tokens"]
    pairs, workers = result["prefill_worker"] >= 0, result["workers"]
    assert (result["status"] == 0).all()
    assert (result["worker"] >= 2).all()
    assert not workers["held_blocks"].any()
    assert pairs.all() == (threshold <= 256)
    # Each request ends once at its decode worker, and once at prefill where it was there.
    for number in range(5):
        served = result["worker" if number >= 2 else "prefill_worker"] == number
        assert workers["requests"][number] == served.sum()
        assert workers["prompt_tokens"][number] == inputs[served].sum()
    assert workers["output_tokens"].tolist()[:2] == [0, 0]
    assert workers["output_tokens"].sum() == outputs.sum()
    # What was not in a cache was computed once; behind a transfer the last token is computed again.
    computed = (inputs - result["hit_tokens"])[pairs].sum(), (inputs - result["hit_tokens"])[~pairs].sum()
    assert workers["computed_tokens"][:2].sum() == computed[0]
    assert workers["computed_tokens"][2:].sum() == computed[1] + pairs.sum()
    assert workers["fetched_tokens"].sum() == result["fetched_tokens"].sum()
    assert not result["fetched_tokens"][~pairs].any()
    at_decode = workers["hit_tokens"][2:].sum() - result["hit_tokens"][~pairs].sum()
    assert at_decode + result["fetched_tokens"].sum() == inputs[pairs].sum()


def test_two_stages_that_are_all_bypassed_are_one():
    routing = {"seed": 3, "policy": "round_robin"}
    passes = {"pd_bypass_uncached_tokens": 2**31 - 1, "pd_bypass_queued_tokens": 2**31 - 1}
    one = replay.simulate(conversation(), routing, {"workers": 1, "cache_blocks": 600})
    two = replay.simulate(conversation(), routing | passes, staged(1, 1))
    assert (two["prefill_worker"] == -1).all()
    for name in ("arrival_s", "ttft_s", "e2e_s", "hit_tokens", "status"):
        assert np.array_equal(one[name], two[name])


def test_a_prefill_worker_does_what_it_would_do_alone():
    trace = conversation()
    prompts = {**trace, "output_tokens": np.ones_like(trace["output_tokens"])}
    alone = replay.simulate(prompts, {"policy": "round_robin"}, {"workers": 1, "cache_blocks": 100_000})
    fleet = staged(1, 2)
    fleet["stages"]["prefill_cache_blocks"] = 100_000
    pairs = replay.simulate(trace, {"policy": "round_robin"}, fleet)
    assert np.array_equal(pairs["hit_tokens"], alone["hit_tokens"])
    for name in ("busy_s", "steps", "computed_tokens", "hit_tokens"):
        assert pairs["workers"][name][0] == alone["workers"][name][0]
    assert (pairs["ttft_s"] > alone["ttft_s"]).all()


@pytest.mark.parametrize("seed", range(6))
def test_two_stages_take_the_time_that_the_slow_twin_takes(seed):
    dice = np.random.default_rng(seed)
    prefill, decode = int(dice.integers(1, 4)), int(dice.integers(1, 4))
    coefficients = {
        "step_ms": 12.0,
        "prefill_us_per_token": 80.0,
        "attention_ns_per_token2": 3.5,
        "decode_us_per_sequence": 50.0,
        "context_ns_per_token": 73.0,
    }
    caches = {"prefill": int(dice.integers(30, 90)), "decode": int(dice.integers(30, 90))}
    speeds = [float(dice.choice([0.5, 1.0, 2.0])) for _ in range(prefill + decode)]
    requests = []
    for at in np.sort(dice.integers(0, 30, 80)):  # several at a time
        prompt, family = int(dice.integers(1, 300)), 100 * int(dice.integers(1, 5))
        blocks = -(-prompt // 16)
        shared = int(dice.integers(0, blocks + 1))
        ids = [family + i if i < shared else int(dice.integers(10_000, 10**9)) for i in range(blocks)]
        requests.append((int(at) / 16, prompt, int(dice.integers(0, 60)), ids))
    trace = columns(requests)
    stages = {
        "prefill": prefill,
        "prefill_cache_blocks": caches["prefill"],
        "kv_bytes_per_token": 262144.0,
        "link_gb_per_s": float(dice.choice([0.1, 1.0, 64.0])),
        "transfer_ms": float(dice.choice([0.0, 1.0, 40.0])),
    }
    fleet = {
        "workers": prefill + decode,
        "cache_blocks": caches["decode"],
        "coefficients": coefficients,
        "max_running": int(dice.integers(1, 8)),
        "step_tokens": int(dice.choice([64, 200, 8192])),
        "speeds": speeds,
        "stages": stages,
    }
    routing = {"policy": "auto", "seed": seed, "pd_bypass_uncached_tokens": int(dice.choice([0, 40, 150]))}
    result = replay.simulate(trace, routing, fleet)

    engines = [
        Options(
            tuple(coefficients.values()),
            speed=speed,
            step_tokens=fleet["step_tokens"],
            max_running=fleet["max_running"],
            cache_blocks=caches["prefill" if number < prefill else "decode"],
        )
        for number, speed in enumerate(speeds)
    ]
    twin = StagedFleet(engines, stages["kv_bytes_per_token"], stages["link_gb_per_s"], stages["transfer_ms"])
    served = [
        Served(
            arrival=int(at * 10**12),
            prompt_tokens=prompt,
            output_tokens=output,
            # Any names do that are equal where all before are equal, and no other.
            names=[hash((row, i)) if i >= len(ids) else hash(tuple(ids[: i + 1])) for i in range(blocks)],
            prompt_blocks=len(ids),
            prefill=None if first < 0 else int(first),
            decode=int(second),
        )
        for row, ((at, prompt, output, ids), first, second) in enumerate(
            zip(requests, result["prefill_worker"], result["worker"], strict=True)
        )
        for blocks in [-(-(prompt + output) // 16)]
    ]
    twin.play(served)
    assert result["hit_tokens"].tolist() == [one.hit for one in served]
    assert result["fetched_tokens"].tolist() == [one.fetched for one in served]
    for column, ends in (("ttft_s", "first_token"), ("e2e_s", "end")):
        expected = [(getattr(one, ends) - one.arrival) / 10**12 for one in served]
        assert result[column].tolist() == expected
    assert [engine.held() for engine in twin.engines] == result["workers"]["held_blocks"].tolist()
    assert not result["workers"]["held_blocks"].any()


GOOD = columns([(0.0, 32, 1, [1, 2]), (1.0, 32, 1, [1, 3])])
WAITING = {
    **GOOD,
    "after_rows": np.array([0]),
    "after_offsets": np.array([0, 0, 1]),
    "pause_s": np.array([0.0, 1.0]),
}


@pytest.mark.parametrize(
    ("trace", "routing", "fleet", "error", "sentence"),
    [
        (columns([]), {}, {}, ValueError, "the trace is empty"),
        ({**GOOD, "arrival_s": np.array([1.0, 0.5])}, {}, {}, ValueError, "falls from 1 to 0.5 at request 1"),
        ({**GOOD, "arrival_s": np.array([-1.0, 0.5])}, {}, {}, ValueError, "arrival_s of request 0 is -1"),
        ({**GOOD, "arrival_s": np.array([0.0, np.nan])}, {}, {}, ValueError, "arrival_s of request 1 is nan"),
        (
            {**GOOD, "input_tokens": np.array([1], np.uint32)},
            {},
            {},
            ValueError,
            "input_tokens has 1 entries",
        ),
        (
            {**GOOD, "input_tokens": np.array([1, 1], np.int64)},
            {},
            {},
            TypeError,
            "input_tokens has dtype int64",
        ),
        (
            {**GOOD, "input_tokens": np.array([16, 32], np.uint32)},
            {},
            {},
            ValueError,
            "request 0 has 2 blocks",
        ),
        ({**GOOD, "block_offsets": np.array([0, 2])}, {}, {}, ValueError, "block_offsets has 2 entries"),
        (
            {**GOOD, "block_offsets": np.array([0, 5, 4])},
            {},
            {},
            ValueError,
            "falls from 5 to 4 at request 1",
        ),
        ({**GOOD, "block_offsets": np.array([0, 2, 5])}, {}, {}, ValueError, "it must go from 0 to 4"),
        ({**GOOD, "block_size": 0}, {}, {}, ValueError, "block_size is 0"),
        ({**GOOD, "time_scale": 0.0}, {}, {}, ValueError, "time_scale is 0; it must be above 0"),
        ({**GOOD, "poisson_rate": -1.0}, {}, {}, ValueError, "poisson_rate is -1"),
        (
            {**GOOD, "poisson_rate": 1.0, "closed_loop": 2},
            {},
            {},
            ValueError,
            "both poisson_rate and closed_loop",
        ),
        ({**WAITING, "poisson_rate": 1.0}, {}, {}, ValueError, "after_rows is given with poisson_rate"),
        ({**WAITING, "closed_loop": 1}, {}, {}, ValueError, "after_rows is given with closed_loop"),
        ({**WAITING, "pause_s": np.array([0.0])}, {}, {}, ValueError, "pause_s has 1 entries"),
        ({**WAITING, "pause_s": np.array([0, -1.0])}, {}, {}, ValueError, "pause_s of request 1 is -1"),
        ({**WAITING, "after_offsets": np.array([0, 1])}, {}, {}, ValueError, "after_offsets has 2 entries"),
        ({**WAITING, "after_rows": np.array([1])}, {}, {}, ValueError, "request 1 waits for request 1;"),
        ({**WAITING, "after_rows": np.array([-1])}, {}, {}, ValueError, "request 1 waits for request -1;"),
        ({**GOOD, "arival_s": 1}, {}, {}, TypeError, 'trace has "arival_s".*did you mean arrival_s'),
        ({"block_size": 16}, {}, {}, KeyError, "trace has no arrival_s"),
        (GOOD, {"policy": "wisest"}, {}, ValueError, "wisest"),
        (GOOD, {"vitrual_nodes": 3}, {}, TypeError, "did you mean virtual_nodes"),
        (
            GOOD,
            {"cache_threshold": 2.0, "policy": "vllm_cache_aware"},
            {},
            ValueError,
            "cache_threshold is 2",
        ),
        (GOOD, {"routers": 0}, {}, ValueError, "routers is 0"),
        (GOOD, {"routers": -1}, {}, TypeError, r'routing\["routers"\] is -1; it must be a whole number'),
        (GOOD, {"peer_sync": 1}, {}, TypeError, r'routing\["peer_sync"\] is 1; it must be a dict'),
        (GOOD, {"peer_sync": {"interval_s": 0.01}}, {}, ValueError, "interval_s is 0.01; routers publish"),
        (GOOD, {"peer_sync": {"stride_tokens": 0}}, {}, ValueError, "stride_tokens is 0; a stride has"),
        (GOOD, {"peer_sync": {"loss": 2.0}}, {}, ValueError, "loss is 2; it is a share"),
        (GOOD, {"peer_sync": {"decisions_delay_s": -1.0}}, {}, ValueError, "decisions_delay_s is -1"),
        (GOOD, {"peer_sync": {"cuts": [1]}}, {}, TypeError, "each cut must be a dict"),
        (GOOD, {"peer_sync": {"cuts": [{"time_s": -1.0}]}}, {}, ValueError, "a cut begins at time_s -1"),
        (GOOD, {"peer_sync": {"cuts": [{"router": 1}]}}, {}, ValueError, "a cut names router 1, but there"),
        (
            GOOD,
            {"pd_bypass_uncached_tokens": 5},
            {},
            ValueError,
            "no prefill stage that could be bypassed",
        ),
        (GOOD, {"policy": "compare_smg"}, PAIR, ValueError, "compare_smg; it chooses no pairs"),
        (
            GOOD,
            {"peer_sync": {}, "routers": 2},
            PAIR,
            ValueError,
            "peer_sync is given for a fleet with stages",
        ),
        (GOOD, {}, {"stages": 2}, TypeError, r'fleet\["stages"\] is 2; it must be a dict'),
        (GOOD, {}, {"stages": {}}, ValueError, "prefill is 0, and the fleet has 8 workers"),
        (GOOD, {}, {"stages": {"prefill": 8}}, ValueError, "prefill is 8, and the fleet has 8 workers"),
        (GOOD, {}, {"stages": {**STAGES, "link_gb_per_s": 0.0}}, ValueError, "link_gb_per_s is 0; it must"),
        (GOOD, {}, {"stages": {**STAGES, "transfer_ms": -1.0}}, ValueError, "transfer_ms is -1; it must"),
        (
            GOOD,
            {},
            {**PAIR, "events": [{"kind": "fail", "time_s": 1.0}]},
            ValueError,
            "a fleet with stages has no events but wipes",
        ),
        (GOOD, {}, {"workers": 0}, ValueError, "workers is 0; a fleet has between 1 and 4096 workers"),
        (GOOD, {}, {"coefficients": "abacus"}, ValueError, '"abacus" is unknown'),
        (GOOD, {}, {"coefficients": {"step_ms": -1}}, ValueError, "step_ms is -1"),
        (GOOD, {}, {"coefficients": {"setp_ms": 1}}, TypeError, "did you mean step_ms"),
        (GOOD, {}, {"max_running": 0}, ValueError, "max_running is 0"),
        (GOOD, {}, {"step_tokens": 0}, ValueError, "step_tokens is 0"),
        (GOOD, {}, {"speeds": [1.0]}, ValueError, "speeds has 1 entries, but the fleet has 8 workers"),
        (GOOD, {}, {"workers": 1, "speeds": [0.0]}, ValueError, "speeds holds 0"),
        (GOOD, {}, {"workers": 1, "weights": [1e9]}, ValueError, "weights holds 1000000000"),
        (GOOD, {}, {"events": [3]}, TypeError, "events"),
        (
            GOOD,
            {},
            {"events": [{"kind": "explode"}]},
            ValueError,
            "it must be fail, join, drain, wipe or speed",
        ),
        (
            GOOD,
            {},
            {"events": [{"kind": "speed", "worker": 0, "speed": 0.0}]},
            ValueError,
            "the event speed of worker 0 has speed 0; it must be from 0.01 to 100",
        ),
        (GOOD, {}, {"events": [{"kind": "fail", "worker": 8}]}, ValueError, "names worker 8"),
        (GOOD, {}, {"events": [{"kind": "fail", "time_s": -1.0}]}, ValueError, "time_s -1"),
        (
            GOOD,
            {},
            {"events": [{"kind": "fail", "time_s": 1.0}, {"kind": "wipe", "time_s": 2.0}]},
            ValueError,
            "the event wipe of worker 0 at 2 s cannot be: the worker is not there then",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(trace, routing, fleet, error, sentence):
    with pytest.raises(error, match=sentence):
        replay.simulate(trace, routing, fleet)


def test_a_fleet_that_would_never_end_is_told():
    slow = {"coefficients": {"step_ms": 86_400_000, "prefill_us_per_token": 1e6}}
    with pytest.raises(ValueError, match="far too slow"):
        replay.simulate(columns([(0.0, 16, 1000, [])]), {}, slow)


def test_ctrl_c_is_heard():
    trace = columns([(0.0, 16, 1, [])] * 400_000)

    def many_runs() -> None:
        for _ in range(100):
            replay.simulate(trace, {"policy": "round_robin"}, {"workers": 2, "coefficients": "h200_32b"})

    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        many_runs()
    timer.join()


GOLDEN = json.loads((DATA.parent / "replay_golden.json").read_text())


def golden_script():
    spec = importlib.util.spec_from_file_location("replay_golden", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_golden_run_is_of_these_policies():
    assert list(GOLDEN) == list(golden_script().POLICIES)


@pytest.mark.parametrize("policy", GOLDEN)
def test_the_golden_run_has_not_changed(policy):
    # Meant? Then scripts/replay_golden.py writes the file anew.
    assert golden_script().figures(policy) == GOLDEN[policy]
