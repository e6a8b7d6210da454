"""cpp/routing/retry_plan.h: whether and when to try again. The twin is compared in tests/property/."""

import pytest

from vllm_router import _core_testing as testing

NO_JITTER = {"jitter_factor": 0.0}


def pauses(plan, count, **failed):
    dice = testing.Random(1)
    return [plan.next(dice, **failed) for _ in range(count)]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_these_statuses_ask_for_another_try(status):
    assert pauses(testing.RetryPlan(True), 1, how="status", status=status) != [None]


@pytest.mark.parametrize("status", [200, 400, 401, 404, 413, 422, 501, 505, 507, 599])
def test_others_are_answers(status):
    assert pauses(testing.RetryPlan(True), 1, how="status", status=status) == [None]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_request_that_may_have_ended_its_worker_is_given_to_few_others(retries):
    plan = testing.RetryPlan(True, **NO_JITTER, lost_retries=retries)
    assert [pause is not None for pause in pauses(plan, retries + 1, how="lost")] == [True] * retries + [
        False
    ]
    assert not plan.exhausted


@pytest.mark.parametrize(
    ("text", "ms"), [("0", 0), ("7", 7000), ("", None), ("soon", None), ("1.5", None), ("-1", None)]
)
def test_retry_after_is_read_in_seconds(text, ms):
    assert testing.parse_retry_after(text) == ms
