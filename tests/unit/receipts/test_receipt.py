"""cpp/receipts/receipt.h: what follows from the numbers of a receipt."""

import json

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("predicted", "reported", "miss"),
    [(1740, 1712, 28), (1712, 1740, 0), (0, 0, 0), (1740, None, None), (None, 1712, None)],
)
def test_a_miss_is_what_was_predicted_and_not_reported(predicted, reported, miss):
    log = testing.ReceiptLog(1, 4)
    log.write(0, "r", predicted=predicted, reported=reported)
    receipt = json.loads(log.find_one("r"))
    assert receipt["miss_tokens"] == miss
    assert (receipt["predicted_cached_tokens"], receipt["reported_cached_tokens"]) == (predicted, reported)


def test_of_a_long_request_id_the_beginning_is_shown_and_the_whole_is_found():
    log = testing.ReceiptLog(1, 4)
    long, other = "x" * 200 + "a", "x" * 200 + "b"
    log.write(0, long, reported=1)
    log.write(0, other, reported=2)
    assert json.loads(log.find_one(long))["reported_cached_tokens"] == 1
    assert json.loads(log.find_one(other))["request_id"] == "x" * 80
    assert log.find_one("x" * 80) is None
