"""python/vllm_router/replay/runner.py and capacity.py: rows out of a simulated fleet."""

import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest

from tests.unit.python.replay.test_trace import trace_of
from vllm_router.replay import Event, Fleet, Trace, TraceError, _engine, capacity, generate, read_trace, run
from vllm_router.replay.capacity import Prober, percentile, yardsticks
from vllm_router.replay.policies import PolicySpec, parse_policies
from vllm_router.replay.runner import summary

DATA = Path(__file__).parents[3] / "data"
SLICE = DATA / "mooncake_conversation_200.jsonl"
CHATS = DATA / "mooncake_conversation_chats.jsonl"
GOLDEN = DATA / "replay_chats_golden.json"


@pytest.fixture(scope="module")
def slice_() -> Trace:
    return read_trace(SLICE)


@pytest.fixture(scope="module")
def rag() -> Trace:
    return generate("rag", 1, 1500)


def test_rows_are_flat_and_come_in_order(slice_):
    rows = run(slice_, ["random", "least_load"], [Fleet(workers=2), Fleet(workers=4)], rate=[1, 3], seeds=2)
    assert [(r["workers"], r["rate"], r["policy"], r["seed"]) for r in rows] == [
        (workers, rate, policy, seed)
        for workers in (2, 4)
        for rate in (1, 3)
        for policy in ("random", "least_load")
        for seed in (1, 2)
    ]
    assert [row["point"] for row in rows] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert all(
        isinstance(value, (int, float, str, bool, type(None))) for row in rows for value in row.values()
    )
    assert len({tuple(row) for row in rows}) == 1  # the same columns in each
    json.dumps(rows)


def test_a_closed_loop_has_the_rate_that_its_fleet_lets_it_have():
    trace = generate("agents", 1, 4, agents=2)
    slow, fast = run(trace, ["random"], [Fleet(workers=1, engine=name) for name in ("h200_32b", "instant")])
    assert slow["rate"] == pytest.approx(slow["requests"] / slow["span_s"])
    assert slow["rate"] < fast["rate"]
    (hurried,) = run(trace, ["random"], Fleet(workers=1), speed=10)
    assert slow["rate"] < hurried["rate"]


@pytest.mark.parametrize("given", [{"load": 0.5}, {"rate": 1}, {"poisson": True}, {"goodput": True}])
def test_a_closed_loop_takes_no_rate(given):
    with pytest.raises(TraceError, match="trace agents is a closed loop"):
        run(generate("agents", 1, 2), ["random"], **given)


def test_equal_arguments_give_equal_rows_whatever_the_jobs(slice_):
    def once(jobs):
        return run(slice_, ["random", "power_of_two"], Fleet(workers=3), rate=2, seeds=2, jobs=jobs)

    assert once(1) == once(4)


def test_all_requests_end_and_nothing_is_hit_that_is_not_there(slice_):
    for row in run(slice_, ["all"], Fleet(workers=4)):
        assert row["finished"] == row["requests"] == 200
        assert 0 <= row["hit_share"] <= row["ideal_hit_share"] + 1e-9
        assert 0 < row["ttft_p50_s"] <= row["ttft_p90_s"] <= row["ttft_p99_s"]
        assert row["e2e_p90_s"] > row["ttft_p90_s"]
        assert row["load"] is None


def test_one_worker_hits_what_is_ideal_when_its_cache_is_large(rag):
    # Far apart, so that each prompt is computed before it comes again.
    (row,) = run(rag, ["least_load"], Fleet(workers=1, cache_tokens=20_000_000), rate=0.2)
    assert row["hit_share"] == pytest.approx(row["ideal_hit_share"], abs=0.002)
    assert not row["saturated"]
    assert row["busiest_share"] == 1


def test_affinity_hits_what_scattering_misses(rag):
    fleet = Fleet(workers=8, cache_tokens=300_000)
    rows = {row["policy"]: row for row in run(rag, ["round_robin", "vllm_cache_aware"], fleet, rate=2)}
    assert rows["vllm_cache_aware"]["hit_share"] > rows["round_robin"]["hit_share"] + 0.2


def test_policies_that_read_the_prompt_itself_see_it():
    # 5 users of each group come to one worker, so most of what they share is there.
    rag = generate("rag", 1, 1500)
    fleet = Fleet(workers=8, cache_tokens=300_000)
    rows = {row["policy"]: row for row in run(rag, ["round_robin", "prefix_hash"], fleet, rate=2)}
    assert rows["prefix_hash"]["hit_share"] > rows["round_robin"]["hit_share"] + 0.2


def test_too_much_traffic_saturates(rag):
    calm, flood = run(rag, ["least_load"], Fleet(workers=2), rate=[0.2, 50])
    assert (calm["saturated"], flood["saturated"]) == (False, True)
    assert flood["waiting_at_end"] > 100
    assert flood["busy"] > 0.9 > calm["busy"]


def test_a_load_is_a_fraction_of_the_capacity_and_capacity_keeps_the_slo(rag):
    fleet = Fleet(workers=2)
    found = capacity(rag, fleet)
    assert found.policy in [spec.label for spec in yardsticks()]
    rows = run(rag, [found.policy], fleet, load=[0.5, 0.98, 1.2], goodput=True)
    assert [row["rate"] for row in rows] == pytest.approx([share * found.rate for share in (0.5, 0.98, 1.2)])
    assert [row["within_slo"] for row in rows] == [True, True, False]
    assert all(row["slo_s"] == pytest.approx(found.slo_s) for row in rows)
    assert rows[0]["goodput"] == pytest.approx(1, abs=0.03)


def test_two_stages_have_a_load_and_more_columns(rag):
    fleet = Fleet(prefill=1, decode=2, cache_tokens=300_000, kv_bytes_per_token=1000)
    policies = ["auto", "auto:pd_bypass_uncached_tokens=2000"]
    pairs, some = run(rag, policies, fleet, load=0.5)
    assert (pairs["prefill"], pairs["decode"], pairs["workers"]) == (1, 2, 3)
    assert (pairs["finished"], some["finished"]) == (1500, 1500)
    assert pairs["rate"] == some["rate"]
    assert pairs["bypass_share"] == 0 < some["bypass_share"] < 1
    prompts = int(rag.input_tokens.sum()) * 1000
    assert some["transferred_bytes"] < pairs["transferred_bytes"] <= prompts
    assert pairs["transferred_share"] == pytest.approx(pairs["transferred_bytes"] / prompts)
    assert pairs["hit_share"] <= pairs["ideal_hit_share"]
    assert 0 < pairs["token_p50_ms"] <= pairs["token_p99_ms"]
    (calm,) = run(rag, ["auto"], fleet, rate=0.01)
    busy = calm["prefill_busy"], calm["decode_busy"]
    assert calm["busy"] == pytest.approx((busy[0] + 2 * busy[1]) / 3)
    with pytest.raises(TraceError, match="compare_smg chooses no pairs"):
        run(rag, ["compare_smg"], fleet)


def test_goodput_is_bisected_to_its_precision():
    class Line(Prober):
        """A fleet whose p90 is its rate."""

        def __init__(self):
            self.asked = []

        def p90_s(self, policy, rate):  # noqa: ARG002
            self.asked.append(rate)
            return rate

    for slo, guess in ((7.3, 1), (7.3, 100), (0.01, 5)):
        line = Line()
        found = line.goodput(PolicySpec("random"), slo, guess)
        assert slo * 0.98 <= found <= slo
        assert len(line.asked) < 20
    assert Line().goodput(PolicySpec("random"), 7.3, 1, at_least=8) == 0
    with pytest.raises(TraceError, match="no rate saturates this fleet"):
        Line().goodput(PolicySpec("random"), math.inf, 1)


def test_a_given_slo_is_kept(rag):
    found = capacity(rag, Fleet(workers=2), slo_s=1.5)
    assert found.slo_s == 1.5
    with pytest.raises(TraceError, match="exceeds the SLO of 1e-06 s at every rate"):
        capacity(rag, Fleet(workers=2), slo_s=1e-6)


def test_a_worker_that_fails_costs_requests_no_more_than_their_time(slice_):
    fleet = Fleet(workers=2, events=[Event(10, "fail", 0), Event(40, "join", 0)])
    (row,) = run(slice_, ["least_load"], fleet)
    assert row["finished"] + row["refused"] + row["cut_short"] == 200
    assert row["finished"] > 150
    (calm,) = run(slice_, ["least_load"], Fleet(workers=2))
    assert row["ttft_p90_s"] > calm["ttft_p90_s"]


def test_wipes_cost_hits(rag):
    calm, wiped = (
        run(rag, ["vllm_cache_aware"], Fleet(workers=2, wipe_every_s=every), rate=1)[0] for every in (0, 5)
    )
    assert wiped["hit_share"] < calm["hit_share"] - 0.1


def test_replicas_that_know_nothing_of_each_other_hit_less(rag):
    one, four = (
        run(rag, ["vllm_cache_aware"], Fleet(workers=8, routers=n), rate=4)[0]["hit_share"] for n in (1, 4)
    )
    assert four < one


def test_a_slow_worker_is_slow(slice_):
    even, uneven = (
        run(slice_, ["round_robin"], Fleet(workers=2, speeds=speeds))[0]["ttft_p90_s"]
        for speeds in ([1, 1], [1, 0.25])
    )
    assert uneven > even


def test_random_arrivals_come_at_the_same_rate(slice_):
    recorded, random = (
        run(slice_, ["random"], Fleet(workers=4), rate=2, poisson=poisson)[0] for poisson in (False, True)
    )
    assert recorded["rate"] == random["rate"] == 2
    assert recorded["ttft_p90_s"] != random["ttft_p90_s"]


def test_a_trace_may_be_made_of_the_seed():
    rows = run(lambda seed: generate("chat", seed, 60), ["random"], Fleet(workers=2), rate=1, seeds=[3, 9])
    assert [row["seed"] for row in rows] == [3, 9]
    assert rows[0]["ideal_hit_share"] != rows[1]["ideal_hit_share"]


def test_progress_is_told_after_each_simulation(slice_):
    seen = []
    run(slice_, ["random", "least_load"], rate=1, seeds=2, jobs=1, on_progress=seen.append)
    assert [(p.done, p.total, p.requests) for p in seen] == [(n, 4, 200 * n) for n in range(1, 5)]
    assert {p.doing for p in seen} == {"random", "least_load"}
    seen.clear()
    run(slice_, ["random"], load=0.5, jobs=1, on_progress=seen.append)
    assert len(seen) > 5
    assert seen[-1].done == seen[-1].total


def test_who_got_no_token_waits_for_ever():
    result = {
        "worker": np.array([0, -1], np.int32),
        "arrival_s": np.array([0.0, 1.0]),
        "ttft_s": np.array([0.5, np.nan]),
        "e2e_s": np.array([2.5, np.nan]),
        "hit_tokens": np.array([8, 0], np.uint32),
        "predicted_tokens": np.array([16, 0], np.uint32),
        "status": np.array([0, 1], np.uint8),
        "workers": {"requests": [1], "busy_s": [2.0], "evicted_blocks": [0]},
        "span_s": 4.0,
        "load_spread": 0.0,
    }
    row = summary(trace_of([[1], [2]]), result)
    assert row["ttft_p50_s"] == 0.5
    assert row["ttft_p90_s"] == math.inf
    assert (row["finished"], row["refused"], row["waiting_at_end"]) == (1, 1, 1)
    assert row["hit_share"] == 8 / 17
    assert row["token_ms"] == 1000
    assert row["busy"] == 0.5


def test_a_percentile_is_a_value_that_was_seen():
    values = np.array([5.0, 1.0, 3.0, 2.0])
    assert [percentile(values, share) for share in (0.0, 0.25, 0.5, 0.9, 1.0)] == [1, 1, 2, 5, 5]
    assert math.isnan(percentile(np.array([]), 0.5))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"policies": []}, "no policy is named; name one, or all"),
        ({"policies": ["lest_load"]}, "policy is 'lest_load'; it must be one of"),
        ({"fleet": []}, "no fleet is given; leave fleet out for 8 workers"),
        (
            {"load": 0.5, "rate": 1},
            "load and rate are both given, and both set the amount of traffic; keep one of them",
        ),
        ({"rate": 1, "speed": 2}, "speed is given with load or rate"),
        ({"load": 0}, "load is 0; it must be above 0"),
        ({"rate": [1, -1]}, "rate is -1; it must be above 0"),
        ({"rate": math.nan}, "rate is nan; it must be above 0"),
        ({"speed": -1}, "speed is -1; it must be above 0"),
        ({"seeds": 0}, "seeds is 0; it must be a whole number from 1 to 1000"),
        ({"seeds": [1, 1]}, "seeds are [1, 1]; they must be different whole numbers, 0 or more"),
        ({"jobs": 0}, "jobs is 0; it must be 1 or more"),
        ({"slo_s": 0, "load": 1}, "slo_s is 0; it must be above 0"),
    ],
)
def test_a_mistake_is_one_sentence(slice_, arguments, sentence):
    with pytest.raises(TraceError) as error:
        run(slice_, **{"policies": ["random"], **arguments})
    assert str(error.value).startswith(sentence)


def golden(policy: str) -> dict[str, object]:
    """What a policy does with the slice in the repository, in a few numbers."""
    trace = read_trace(CHATS, spread=False).at_rate(6)
    fleet = Fleet(workers=4, cache_tokens=100_000)
    (spec,) = parse_policies([policy])
    routing = fleet.routing() | spec.as_core(trace.block_size, fleet.cache_blocks(trace), 1)
    result = _engine.simulate(trace.as_core(), routing, fleet.as_core(trace))
    return {
        "workers_crc32": zlib.crc32(np.asarray(result["worker"], np.int32).tobytes()),
        "hit_tokens": int(np.asarray(result["hit_tokens"]).sum()),
        "ttft_p90_s": round(percentile(np.asarray(result["ttft_s"]), 0.9), 6),
    }


def golden_policies() -> list[str]:
    return [spec.name for spec in parse_policies(["everything"])]


def test_a_small_slice_gives_what_it_always_gave():
    # When a policy or the engine is meant to change: python -m tests.unit.python.replay.test_runner
    known = json.loads(GOLDEN.read_text())
    measured = {policy: golden(policy) for policy in golden_policies()}
    assert {policy: measured[policy] for policy in known} == known
    # A policy that is not in the file yet is held to what holds for all.
    assert all(0 < figures["hit_tokens"] < 2_000_000 for figures in measured.values())


if __name__ == "__main__":
    found = {policy: golden(policy) for policy in golden_policies()}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
