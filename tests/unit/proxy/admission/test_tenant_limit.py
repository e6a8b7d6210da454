"""cpp/proxy/admission/tenant_limit.h: what a request takes of its tenant's limits, and is told."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

SECOND = 10**9
LINES = (
    "tenant requests_per_minute=60 burst_ms=2000 default\n"
    "tenant concurrency=1 named\n"
    "tenant tokens_per_minute=600 burst_ms=10000 tokens\n"
    "tenant requests_per_minute=60 tokens_per_minute=600 burst_ms=10000 both\n"
    "tenant requests_per_minute=6 tokens_per_minute=600 burst_ms=10000 slow\n"
    "tenant weight=2 free"
)


def limit_of(tenant):
    limit = testing.TenantLimit(LINES, tenant)
    assert limit.next()
    return limit


@for_each_row(
    ("nanos", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (12_000_000, "12ms"),
        (999_000_001, "1s"),
        (7_660_000_000, "7.66s"),
        (7_600_000_000, "7.6s"),
        (7_006_000_000, "7.006s"),
        (60 * SECOND, "1m0s"),
        (90_951_000_000, "1m30.951s"),
        (360 * SECOND, "6m0s"),
        (3600 * SECOND, "1h0m0s"),
        (100 * 3600 * SECOND + 3_500_000_000, "100h0m3.5s"),
    ],
    ids=str,
)
def test_durations(nanos, text):
    assert testing.duration_text(nanos) == text


def test_a_tenant_without_limits_has_none():
    assert not testing.TenantLimit(LINES, "free").next()
    assert not testing.TenantLimit("", "any").next()
    assert testing.TenantLimit(LINES, "any").next()  # as default


def test_requests_per_minute():
    limit = limit_of("any")
    for _ in range(2):
        assert limit.next()
        assert limit.begin()
        limit.end()
    assert limit.next()
    assert not limit.begin()
    assert limit.rejected == ("tenant_rate_limited", SECOND)
    assert limit.retry_after_ns == SECOND
    assert (
        limit.message
        == 'Tenant "any" is limited to 60 requests per minute, 2 of them at once; see Retry-After.'
    )
    limit.end()  # of one that has not begun
    assert limit.next()
    assert limit.begin(SECOND)


def test_requests_at_a_time():
    limit = limit_of("named")
    assert limit.begin()
    assert limit.next()  # while the first one is open
    assert not limit.begin()
    assert limit.rejected == ("tenant_concurrency", 0)
    assert limit.retry_after_ns == 1  # a second, as all fractions
    assert limit.message == (
        'Tenant "named" has 1 requests under way, which is its limit; wait for the response to one of them.'
    )
    assert limit.fields() == []


def test_a_place_is_returned_before_the_end_and_once():
    limit = limit_of("named")
    assert limit.begin()
    limit.return_place()
    limit.return_place()
    limit.end()
    assert limit.next()
    assert limit.begin()
    assert limit.next()
    assert not limit.begin()
    limit.return_place()  # of one that has none
    assert limit.next()
    assert not limit.begin()


def test_tokens_are_reserved_and_settled():
    limit = limit_of("tokens")
    assert limit.begin()
    assert limit.take_tokens(90)
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == "10"
    limit.end(used=30)
    limit.end(used=1)  # once is enough
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == "70"
    assert limit.next()
    assert limit.begin()
    assert not limit.take_tokens(80)
    assert limit.rejected == ("tenant_tokens_limited", SECOND)
    assert limit.message == (
        'Tenant "tokens" is limited to 600 tokens per minute, 100 of them at once, '
        "and this request needs 80; see Retry-After."
    )
    limit.end(used=0)
    assert limit.next()
    assert limit.begin()
    assert limit.take_tokens(70)
    limit.end()  # its worker did not say
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == "0"


def test_what_is_told_to_wait_for_tokens_passes_at_that_time():
    limit = limit_of("slow")
    assert limit.begin()
    assert limit.take_tokens(100)
    limit.end(used=150)  # 15 s of tokens; the next request may come after 10
    assert limit.next(10 * SECOND)
    assert limit.begin(10 * SECOND)
    assert not limit.take_tokens(100, now_ns=10 * SECOND)
    assert limit.rejected == ("tenant_tokens_limited", 5 * SECOND)
    assert dict(limit.fields(now_ns=10 * SECOND))["x-ratelimit-remaining-requests"] == "1"
    limit.end(used=0, now_ns=10 * SECOND)
    assert limit.next(15 * SECOND)
    assert limit.begin(15 * SECOND)
    assert limit.take_tokens(100, now_ns=15 * SECOND)


@pytest.mark.parametrize(
    ("events", "left"),
    [(0, "50"), (30, "50"), (31, "49"), (60, "20"), (1000, "0")],
    ids=["unseen", "as_expected", "one_more", "more", "many"],
)
def test_what_was_streamed_counts_where_its_worker_did_not_say(events, left):
    limit = limit_of("tokens")
    assert limit.begin()
    assert limit.take_tokens(20, output=30)
    limit.end(events=events)
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == left


def test_usage_counts_and_not_events():
    limit = limit_of("tokens")
    assert limit.begin()
    assert limit.take_tokens(20, output=30)
    limit.end(used=25, events=1000)
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == "75"


def test_a_request_above_the_whole_burst():
    limit = limit_of("tokens")
    assert limit.begin()
    assert not limit.take_tokens(101)
    assert limit.rejected == ("tenant_tokens_limited", None)
    assert limit.retry_after_ns == 0
    assert limit.message == (
        'Tenant "tokens" is limited to 600 tokens per minute, 100 of them at once, '
        "and this request needs 101; send a shorter prompt or a lower max_tokens, since waiting does not "
        "help."
    )


def test_a_prompt_that_is_not_counted_needs_no_more_than_the_burst():
    limit = limit_of("tokens")
    assert limit.begin()
    assert limit.take_tokens(10**9, counted=False)
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == "0"
    limit.end(used=40)
    assert dict(limit.fields())["x-ratelimit-remaining-tokens"] == "60"


def test_fields_of_both_rates_and_apis():
    limit = limit_of("both")
    assert limit.begin()
    assert limit.take_tokens(25)
    assert limit.fields() == [
        ("x-ratelimit-limit-requests", "10"),
        ("x-ratelimit-remaining-requests", "9"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "100"),
        ("x-ratelimit-remaining-tokens", "75"),
        ("x-ratelimit-reset-tokens", "2.5s"),
    ]
    anthropic = limit.fields(anthropic=True, unix_us=1_795_963_837_120_000)
    assert [field for field in anthropic if field[0].startswith("anthropic-")] == [
        ("anthropic-ratelimit-requests-limit", "10"),
        ("anthropic-ratelimit-requests-remaining", "9"),
        ("anthropic-ratelimit-requests-reset", "2026-11-29T14:50:39Z"),
        ("anthropic-ratelimit-tokens-limit", "100"),
        ("anthropic-ratelimit-tokens-remaining", "75"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-29T14:50:40Z"),
    ]
    assert len(anthropic) == 12
