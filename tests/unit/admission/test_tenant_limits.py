"""cpp/admission/tenant_limits.h: what a tenant may use. Its twin: tests/models/tenant_limits.py."""

from vllm_router import _core_testing as testing

SECOND = 10**9
MINUTE = 60 * SECOND


def test_a_burst_at_once_and_then_one_by_one():
    bucket = testing.RateBucket(per_minute=120, burst_ns=2 * SECOND)
    assert [bucket.take(1, 0) for _ in range(5)] == [0, 0, 0, 0, SECOND // 2]
    assert bucket.take(1, SECOND // 2 - 1) == 1
    assert bucket.take(1, SECOND // 2) == 0


def test_what_is_rejected_takes_nothing():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    assert bucket.take(8, 0) == 0
    assert [bucket.take(3, 0) for _ in range(9)] == [SECOND] * 9
    assert bucket.take(2, 0) == 0


def test_no_wait_helps_an_amount_above_the_burst():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    assert bucket.take(11, 0) is None
    assert bucket.take(10, 0) == 0


def test_one_passes_however_short_the_burst():
    bucket = testing.RateBucket(per_minute=1, burst_ns=1)
    assert bucket.level(0) == (1, 1, 0)
    assert [bucket.take(1, 0), bucket.take(1, 0), bucket.take(1, MINUTE)] == [0, MINUTE, 0]


def test_what_is_left():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    assert bucket.level(0) == (10, 10, 0)
    bucket.take(4, 0)
    assert bucket.level(0) == (10, 6, 4 * SECOND)
    assert bucket.level(SECOND // 2) == (10, 6, 7 * SECOND // 2)  # half of one is none
    assert bucket.level(SECOND) == (10, 7, 3 * SECOND)
    assert bucket.level(9 * SECOND) == (10, 10, 0)


def test_an_estimate_that_was_too_high_is_returned():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    bucket.take(10, 0)
    bucket.settle(10, 3, 0)
    assert bucket.level(0) == (10, 7, 3 * SECOND)
    bucket.settle(3, 0, 5 * SECOND)  # it is full again meanwhile, and no fuller than that
    assert bucket.level(5 * SECOND) == (10, 10, 0)


def test_an_estimate_that_was_too_low_is_a_debt():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    bucket.take(1, 0)
    bucket.settle(1, 25, 0)
    assert bucket.level(0) == (10, 0, 25 * SECOND)
    assert bucket.take(1, 0) == 16 * SECOND
    assert bucket.take(1, 16 * SECOND) == 0


def test_a_debt_is_an_hour_at_most():
    bucket = testing.RateBucket(per_minute=1, burst_ns=1)
    bucket.take(1, 0)
    bucket.settle(1, 10**12, 0)
    assert bucket.used(0) == testing.MOST_DEBT_NS + MINUTE
    bucket.settle(1, 10**12, 0)
    assert bucket.used(0) == testing.MOST_DEBT_NS + MINUTE


def test_another_pace_keeps_how_much_was_used():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    bucket.take(10, 0)
    bucket.set_pace(600, 10 * SECOND)
    assert bucket.level(0) == (100, 90, SECOND)
    assert bucket.take(1, 0) == 0
    assert bucket.level(0) == (100, 89, 11 * SECOND // 10)
    bucket.set_pace(60, 10 * SECOND)
    assert bucket.level(0) == (10, 0, 11 * SECOND)
    assert bucket.take(1, 0) == 2 * SECOND


def test_a_debt_is_paid_at_the_pace_of_now():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    bucket.take(1, 0)
    bucket.settle(1, 3000, 0)
    assert bucket.take(1, 0) == 2991 * SECOND
    bucket.set_pace(60_000, 10 * SECOND)
    assert bucket.take(1, 0) == 0
    assert bucket.level(3 * SECOND) == (10_000, 9_999, SECOND // 1000)


def test_a_debt_is_an_hour_at_most_at_a_lower_pace():
    bucket = testing.RateBucket(per_minute=6000, burst_ns=1)
    bucket.take(1, 0)
    bucket.settle(1, 10**9, 0)
    bucket.set_pace(1, 1)
    assert bucket.take(1, 0) == testing.MOST_DEBT_NS + MINUTE
    assert bucket.used(0) == testing.MOST_DEBT_NS + MINUTE


def test_what_was_taken_at_a_former_pace_is_settled_at_that_of_now():
    bucket = testing.RateBucket(per_minute=60, burst_ns=10 * SECOND)
    bucket.take(4, 0)
    bucket.set_pace(600, 10 * SECOND)
    bucket.take(1, 0)
    bucket.set_pace(60, 10 * SECOND)  # that of the first request
    bucket.settle(4, 1, 0)
    assert bucket.used(0) == SECOND // 5


def test_a_meter_without_limits_lets_all_pass():
    meter = testing.TenantMeter()
    assert [meter.begin(0) for _ in range(100)] == [None] * 100
    assert meter.take_tokens(10**12, 0) is None
    meter.settle_tokens(10**12, 1, 0)
    assert meter.open == 100


def test_requests_at_a_time():
    meter = testing.TenantMeter(concurrency=2)
    assert [meter.begin(0) for _ in range(3)] == [None, None, ("tenant_concurrency", 0)]
    meter.end()
    assert [meter.begin(0), meter.begin(0)] == [None, ("tenant_concurrency", 0)]


def test_requests_per_minute():
    meter = testing.TenantMeter(concurrency=5, requests_per_minute=60, burst_ms=2000)
    assert [meter.begin(0) for _ in range(3)] == [None, None, ("tenant_rate_limited", SECOND)]
    assert meter.open == 2  # the third has taken no place
    for _ in range(2):
        meter.end()
    assert meter.begin(SECOND) is None


def test_a_request_that_is_returned_counts_as_none_per_minute():
    meter = testing.TenantMeter(requests_per_minute=60, burst_ms=2000)
    assert [meter.begin(0), meter.begin(0)] == [None, None]
    meter.return_request(0)
    assert [meter.begin(0), meter.begin(0)] == [None, ("tenant_rate_limited", SECOND)]
    meter.return_request(9 * SECOND)  # all are there again, and no more than that
    assert [meter.begin(9 * SECOND) for _ in range(3)] == [None, None, ("tenant_rate_limited", SECOND)]


def test_a_request_is_returned_to_a_tenant_without_such_a_limit():
    meter = testing.TenantMeter(concurrency=1)
    assert meter.begin(0) is None
    meter.return_request(0)
    assert meter.begin(0) == ("tenant_concurrency", 0)


def test_one_too_many_at_a_time_costs_no_request_per_minute():
    meter = testing.TenantMeter(concurrency=1, requests_per_minute=60, burst_ms=2000)
    assert [meter.begin(0) for _ in range(9)] == [None] + [("tenant_concurrency", 0)] * 8
    meter.end()
    assert meter.begin(0) is None


def test_tokens_per_minute():
    meter = testing.TenantMeter(tokens_per_minute=600, burst_ms=10_000)
    assert meter.take_tokens(101, 0) == ("tenant_tokens_limited", None)
    assert meter.take_tokens(100, 0) is None
    assert meter.take_tokens(5, 0) == ("tenant_tokens_limited", SECOND // 2)
    meter.settle_tokens(100, 40, 0)
    assert meter.take_tokens(60, 0) is None


def test_a_meter_is_unused_once_nothing_is_open_and_nothing_owed():
    meter = testing.TenantMeter(requests_per_minute=60, tokens_per_minute=60)
    assert meter.is_unused(0)
    meter.begin(0)
    meter.take_tokens(3, 0)
    assert not meter.is_unused(3 * SECOND)  # it is open
    meter.end()
    assert not meter.is_unused(3 * SECOND - 1)
    assert meter.is_unused(3 * SECOND)
