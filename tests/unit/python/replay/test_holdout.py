"""python/vllm_router/replay/holdout.py: what a hold-out shows of simulated traffic is true."""

import math

import numpy as np
import pytest

from vllm_router.replay import Fleet, Holdout, Trace, TraceError, generate, run
from vllm_router.replay.holdout import Conversations, sentence_of

FLEET = Fleet(workers=8)
FIFTH = Holdout(20)
RATE = 25


@pytest.fixture(scope="module")
def chats() -> Trace:
    return generate("chat", 1, 2000)


def played(trace, policy, seeds, holdout=FIFTH):
    return run(trace, [policy], FLEET, rate=RATE, seeds=list(seeds), holdout=holdout)


def contains(row, name, value):
    return row[f"{name}_low"] <= value <= row[f"{name}_high"]


def test_the_interval_contains_the_truth_and_the_effect_is_found(chats):
    """The truth: the mean of many runs with other sessions held out."""
    truth = np.mean([row["holdout_cached_share"] for row in played(chats, "auto", range(100, 140))])
    rows = played(chats, "auto", range(20))
    assert sum(contains(row, "holdout_cached_share", truth) for row in rows) >= 18
    assert sum(row["holdout_cached_share_low"] > 0 for row in rows) >= 18
    assert truth > 0.1


def test_a_policy_that_is_its_own_baseline_changes_nothing(chats):
    rows = played(chats, "least_load", range(20))
    assert sum(contains(row, "holdout_cached_share", 0) for row in rows) >= 18
    assert sum(contains(row, "holdout_ttft_ratio", 1) for row in rows) >= 18


def test_about_so_many_sessions_are_held_out_and_the_seed_says_which(chats):
    sessions = len(np.unique(chats.session_ids))
    first, second = played(chats, "auto", [1, 2])
    for row in (first, second):
        assert row["holdout_conversations"] + row["policy_conversations"] == sessions
        assert abs(row["holdout_conversations"] - sessions * 0.2) < 4 * math.sqrt(sessions * 0.2)
    assert first["holdout_cached_share"] != second["holdout_cached_share"]
    assert played(chats, "auto", [1])[0]["holdout_cached_share"] == first["holdout_cached_share"]


def test_without_one_rows_have_no_such_columns(chats):
    (row,) = run(chats.head(50), ["auto"], FLEET, rate=RATE)
    assert not [name for name in row if "holdout" in name]


def test_below_100_held_out_sessions_there_is_no_estimate(chats):
    (row,) = played(chats, "auto", [1], Holdout(0.5))
    assert row["holdout_cached_share"] is None
    assert "too few" in sentence_of(row)


def test_a_sentence_says_what_it_shows(chats):
    (row,) = played(chats, "auto", [1])
    said = sentence_of(row)
    assert said.startswith("auto, seed 1: ")
    assert f"cached share {row['holdout_cached_share']:+.3f}" in said
    assert f"x {row['holdout_ttft_ratio']:.2f}" in said


def test_sums_are_of_each_session():
    trace = Trace(
        name="t",
        block_size=16,
        arrival_s=np.arange(4.0),
        input_tokens=np.array([100, 200, 100, 300], np.uint32),
        output_tokens=np.ones(4, np.uint32),
        block_ids=np.array([], np.uint64),
        block_offsets=np.zeros(5, np.int64),
        session_ids=np.array([7, 3, 7, 3], np.uint64),
    )
    result = {
        "ttft_s": np.array([1.0, 1.0, math.e, np.nan]),
        "e2e_s": np.array([2.0, 2.0, 3.0, np.nan]),
        "hit_tokens": np.array([0, 50, 80, 0], np.uint32),
        "held_out": np.array([1, 0, 1, 0], np.uint8),
    }
    found = Conversations.of(trace, result)
    assert found.held_out.tolist() == [True, False]  # the session that ended first comes first
    assert found.cached_share.tolist() == [0.4, 0.25]
    assert found.log_ttft[0] == pytest.approx(1)
    assert math.isnan(found.log_ttft[1])
    assert found.stratum.tolist() == [9, 10]  # 400 and 800 bytes


@pytest.mark.parametrize(
    ("percent", "policy", "message"),
    [
        (0, "least_load", "holdout is 0; it is a percentage"),
        (51, "least_load", "from 0.01 to 50"),
        (math.nan, "least_load", "holdout is nan"),
        (5, "auto", "holdout_policy is auto; it must be one of least_load"),
    ],
)
def test_what_makes_no_sense_is_rejected(percent, policy, message):
    with pytest.raises(TraceError, match=message):
        Holdout(percent, policy)


def test_it_is_rejected_in_front_of_prefill_and_decode_workers(chats):
    with pytest.raises(TraceError, match="no baseline chooses"):
        run(chats, ["auto"], Fleet(prefill=1, decode=1), holdout=Holdout(5))
