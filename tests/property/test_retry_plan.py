"""RetryPlan against its slow twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import retry_plan as twin
from tests.models.random import Random
from vllm_router import _core_testing as testing

HOWS = ["connect", "broken", "lost", "bad_answer", "send_timeout", "first_byte_timeout", "status", "drained"]

OPTIONS = st.fixed_dictionaries(
    {
        "max_tries": st.integers(1, 8),
        "lost_retries": st.integers(0, 3),
        "initial_backoff_ms": st.integers(1, 1000),
        "max_backoff_ms": st.integers(1, 30_000),
        "backoff_multiplier": st.floats(1, 10),
        "jitter_factor": st.floats(0, 1),
        "disabled": st.booleans(),
    }
)
FAILED = st.builds(
    twin.Failed,
    how=st.sampled_from(HOWS),
    status=st.sampled_from([400, 408, 429, 500, 501, 502, 503, 504, 505]),
    retry_after_ms=st.none() | st.sampled_from([0, 1000, 2000, 2001, 11_000]),
    untried_left=st.booleans(),
    since_first_sent=st.sampled_from([0.0, 29.0, 31.0]),
)


@given(OPTIONS, st.booleans(), st.booleans(), st.lists(FAILED, max_size=10), st.integers(0, 2**64 - 1))
def test_the_plan_is_its_twin_s(options, repeatable, retry_lost, story, seed):
    plan = testing.RetryPlan(repeatable, retry_lost, **options)
    slow = twin.RetryPlan(twin.Options(**options), repeatable, retry_lost=retry_lost)
    dice, slow_dice = testing.Random(seed), Random(seed)
    for failed in story:
        pause = plan.next(
            dice,
            how=failed.how,
            status=failed.status,
            retry_after_ms=failed.retry_after_ms,
            untried_left=failed.untried_left,
            since_first_sent=failed.since_first_sent,
        )
        expected = slow.next(failed, slow_dice)
        assert (pause is None) == (expected is None)
        if pause is not None:
            assert pause == pytest.approx(expected, abs=1e-8)
        assert (plan.failures, plan.exhausted) == (slow.failures, slow.exhausted)
