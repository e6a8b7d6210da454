"""cpp/routing/retry_plan.h: whether and when to try again. The twin is compared in tests/property/."""

import pytest

from vllm_router import _core_testing as testing

NO_JITTER = {"jitter_factor": 0.0}


def pauses(plan, count, **failed):
    dice = testing.Random(1)
    return [plan.next(dice, **failed) for _ in range(count)]


def test_pauses_grow_to_a_limit_and_the_tries_end():
    plan = testing.RetryPlan(True, **NO_JITTER, max_tries=6, max_backoff_ms=150)
    *grown, last = pauses(plan, 6, how="status", status=500)
    assert grown == pytest.approx([0.05, 0.075, 0.1125, 0.15, 0.15])
    assert last is None
    assert plan.exhausted


def test_jitter_moves_a_pause_both_ways_by_its_share():
    drawn = [
        testing.RetryPlan(True, jitter_factor=0.2).next(testing.Random(seed), how="status", status=503)
        for seed in range(200)
    ]
    assert 0.04 <= min(drawn) < 0.042
    assert 0.058 < max(drawn) <= 0.06


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_these_statuses_ask_for_another_try(status):
    assert pauses(testing.RetryPlan(True), 1, how="status", status=status) != [None]


@pytest.mark.parametrize("status", [200, 400, 401, 404, 413, 422, 501, 505, 507, 599])
def test_others_are_answers(status):
    assert pauses(testing.RetryPlan(True), 1, how="status", status=status) == [None]


def test_the_first_move_to_somebody_untried_after_a_broken_connection_is_at_once():
    plan = testing.RetryPlan(True, **NO_JITTER)
    assert pauses(plan, 2, how="broken", untried_left=True) == [0.0, pytest.approx(0.075)]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_request_that_may_have_ended_its_worker_is_given_to_few_others(retries):
    plan = testing.RetryPlan(True, **NO_JITTER, lost_retries=retries)
    assert [pause is not None for pause in pauses(plan, retries + 1, how="lost")] == [True] * retries + [
        False
    ]
    assert not plan.exhausted


def test_a_worker_that_speaks_no_http_is_followed_by_one_other():
    """It may be the request's work, so it is not sent to the whole fleet."""
    plan = testing.RetryPlan(True, **NO_JITTER)
    assert [pause is not None for pause in pauses(plan, 2, how="bad_answer")] == [True, False]
    assert not plan.exhausted


def test_a_worker_that_drains_is_no_loss():
    """Row 11: three that leave one after the other, and a client that gets no retry after a loss."""
    plan = testing.RetryPlan(True, **NO_JITTER, retry_lost=False, max_tries=4)
    assert pauses(plan, 4, how="drained", untried_left=True) == [
        *(0.0, pytest.approx(0.075), pytest.approx(0.1125)),
        None,
    ]
    assert plan.exhausted


def test_a_client_may_be_denied_retries_of_lost_requests():
    plan = testing.RetryPlan(True, retry_lost=False)
    assert pauses(plan, 1, how="lost", untried_left=True) == [None]
    assert pauses(testing.RetryPlan(True, retry_lost=False), 1, how="connect", untried_left=True) == [0.0]


def test_what_cannot_be_repeated_is_tried_again_only_if_no_worker_knows_of_it():
    assert pauses(testing.RetryPlan(False), 1, how="connect", untried_left=True) == [0.0]
    for how in ("broken", "lost", "bad_answer", "send_timeout", "first_byte_timeout", "drained"):
        assert pauses(testing.RetryPlan(False), 1, how=how, untried_left=True) == [None]
    assert pauses(testing.RetryPlan(False), 1, how="status", status=503) == [None]


@pytest.mark.parametrize(("seconds", "pause"), [(0, 0.05), (1, 1.0), (2, 2.0), (3, None)])
def test_a_worker_that_is_alone_is_given_the_time_it_asked_for_if_that_is_short(seconds, pause):
    plan = testing.RetryPlan(True, **NO_JITTER)
    assert pauses(plan, 1, how="status", status=503, retry_after_ms=seconds * 1000) == [pause]


def test_another_worker_need_not_wait_for_it():
    plan = testing.RetryPlan(True, **NO_JITTER)
    assert pauses(plan, 1, how="status", status=503, retry_after_ms=9000, untried_left=True) == [0.05]


def test_a_worker_that_was_silent_for_long_is_not_followed_by_another():
    assert pauses(testing.RetryPlan(True), 1, how="first_byte_timeout", since_first_sent=29.0) != [None]
    assert pauses(testing.RetryPlan(True), 1, how="first_byte_timeout", since_first_sent=31.0) == [None]


@pytest.mark.parametrize(
    ("text", "ms"), [("0", 0), ("7", 7000), ("", None), ("soon", None), ("1.5", None), ("-1", None)]
)
def test_retry_after_is_read_in_seconds(text, ms):
    assert testing.parse_retry_after(text) == ms
