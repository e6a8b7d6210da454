"""cpp/receipts/receipt_json.h: the members of docs/reference/http_api.md."""

import json

from vllm_router import _core_testing as testing


def test_a_receipt_has_all_members():
    log = testing.ReceiptLog(1, 4)
    log.write(0, "r", wall_us=1_764_000_000_123_000, predicted=1740, reported=1712, total_us=99)
    assert json.loads(log.find_one("r")) == {
        "request_id": "r",
        "ts": "2025-11-24T16:00:00.123Z",
        "model": "m",
        "route": "/v1/completions",
        "policy": "auto",
        "reason": "lowest_cost",
        "worker": "http://w0:8000",
        "arm": "policy",
        "predicted_cached_tokens": 1740,
        "reported_cached_tokens": 1712,
        "prompt_tokens": 1740,
        "miss_tokens": 28,
        "best_match": {"worker": "http://w0:8000", "cached_tokens": 1740},
        "foregone_tokens": 0,
        "load": {"open": 0, "best_open": 0, "queued_tokens": 0},
        "queue_ms": 0,
        "decision_us": 14,
        "ttft_ms": None,
        "attempts": 1,
        "end": "done",
        "status": 200,
    }


def test_a_policy_that_matches_nothing_predicts_nothing():
    log = testing.ReceiptLog(1, 4)
    log.write(0, "r", reason="round_robin", reported=5)
    receipt = json.loads(log.find_one("r"))
    names = ("predicted_cached_tokens", "best_match", "foregone_tokens", "miss_tokens", "prompt_tokens")
    assert [receipt[name] for name in names] == [None] * 5
    assert receipt["load"]["best_open"] is None


def test_texts_are_escaped():
    log = testing.ReceiptLog(1, 4)
    log.write(0, 'a"b', model='m"\n<x>')
    assert json.loads(log.find_one('a"b'))["model"] == 'm"\n<x>'


def test_without_a_match_no_share_is_given():
    page = json.loads(testing.ReceiptLog(1, 4).find([]))
    assert page == {"receipts": [], "kept": 0, "dropped": 0, "reported_share": None}
