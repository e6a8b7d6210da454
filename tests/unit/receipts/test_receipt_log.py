"""cpp/receipts/receipt_log.h against tests/models/receipts.py, and what it keeps beside the receipts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models import receipts as slow
from vllm_router import _core_testing as testing

THREADS = 3
WORKERS = ["http://w0:8000", "http://w1:8000"]
MODELS = ["m", "n"]
REASONS = ["lowest_cost", "prefix_hit"]
tokens = st.none() | st.integers(0, 50)
written = st.fixed_dictionaries(
    {
        "thread": st.integers(0, THREADS - 1),
        "worker": st.sampled_from(WORKERS),
        "model": st.sampled_from(MODELS),
        "reason": st.sampled_from(REASONS),
        "wall_us": st.integers(0, 20).map(lambda second: second * 1_000_000),
        "predicted": tokens,
        "reported": tokens,
    }
)
asked = st.fixed_dictionaries(
    {},
    optional={
        "last": st.integers(1, 8),
        "worker": st.sampled_from([*WORKERS, "http://unknown:1"]),
        "model": st.sampled_from([*MODELS, "unknown"]),
        "reason": st.sampled_from([*REASONS, "sticky"]),
        "arm": st.sampled_from(["policy", "holdout"]),
        "min_miss_tokens": st.integers(0, 40),
        "since": st.integers(0, 20),
    },
)


@given(st.integers(1, 5), st.lists(written, max_size=20), asked)
def test_filters_are_those_of_the_twin(per_thread, receipts, parameters):
    log, twin = testing.ReceiptLog(THREADS, per_thread), slow.ReceiptLog(THREADS, per_thread)
    # Ends differ, as a tie has no order, and ascend in each thread, as receipts are written at the end.
    for number, receipt in enumerate(receipts):
        total_us = 100_000_000 - receipt["wall_us"] + number
        thread = receipt["thread"]
        rest = {name: value for name, value in receipt.items() if name != "thread"}
        log.write(thread, f"r{number}", total_us=total_us, **rest)
        twin.write(thread, id=f"r{number}", total_us=total_us, **rest)
    page = json.loads(log.find([(name, str(value)) for name, value in parameters.items()]))
    ids = [receipt["request_id"] for receipt in page["receipts"]]
    assert (ids, page["kept"], page["dropped"], page["reported_share"]) == twin.find(**parameters)


def test_one_receipt_is_found_by_its_request_id_the_newest_first():
    log = testing.ReceiptLog(2, 4)
    log.write(0, "same", wall_us=1, reported=1)
    log.write(1, "same", wall_us=3, reported=3)
    log.write(0, "same", wall_us=2, reported=2)
    log.write(0, "other", wall_us=4)
    assert json.loads(log.find_one("same"))["reported_cached_tokens"] == 3
    assert log.find_one("sam") is None


def test_sixteen_candidates_are_kept_the_chosen_one_first_then_the_longest_matches():
    log = testing.ReceiptLog(1, 4)
    log.write(0, "r", predicted=100, candidates=40)
    shown = json.loads(log.find_one("r"))["candidates"]
    assert [one["worker"] for one in shown] == ["http://w0:8000"] + [
        f"http://candidate-{i}" for i in range(39, 24, -1)
    ]
    assert shown[1] == {"worker": "http://candidate-39", "open": 39, "cached_tokens": 39, "cost": 19.5}


def test_of_1024_lists_of_candidates_the_oldest_is_forgotten_and_its_receipt_is_not():
    log = testing.ReceiptLog(1, 2000)
    for number in range(1025):
        log.write(0, f"r{number}", candidates=1)
    assert "candidates" not in json.loads(log.find_one("r0"))
    assert "candidates" in json.loads(log.find_one("r1"))


def test_names_beyond_the_limit_and_long_ones_are_left_out():
    log = testing.ReceiptLog(1, 8192)
    for number in range(4100):
        log.write(0, f"r{number}", model=f"m{number}")
    log.write(0, "long", model="m" * 257)
    assert json.loads(log.find_one("r17"))["model"] == "m17"
    assert json.loads(log.find_one("r4099"))["model"] is None
    assert json.loads(log.find_one("long"))["model"] is None


def test_tenants_that_clients_invent_take_no_names_of_others():
    log = testing.ReceiptLog(1, 8192)
    log.write(0, "first", tenant="honest", priority_class="batch", model="early")
    for number in range(4095):
        log.write(0, f"r{number}", tenant=f"invented-{number}")
    assert json.loads(log.find_one("first"))["tenant"] == "honest"
    log.write(0, "one-more", tenant="invented", model="late")
    first, last = (json.loads(log.find_one(name)) for name in ("first", "one-more"))
    assert (first["tenant"], first["class"], first["model"]) == (None, "batch", "early")
    assert (last["tenant"], last["model"]) == ("invented", "late")
    log.write(0, "again", tenant="honest")
    assert json.loads(log.find_one("again"))["tenant"] == "honest"
    assert json.loads(log.find_one("first"))["tenant"] is None


def test_where_clients_are_not_told_apart_receipts_have_no_such_members():
    log = testing.ReceiptLog(1, 4)
    log.write(0, "r")
    assert {"tenant", "class"}.isdisjoint(json.loads(log.find_one("r")))
