"""cpp/conditions/recent_outcomes.h against tests/models/recent_outcomes.py."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.models import recent_outcomes as slow
from vllm_router import _core_testing as testing

SECOND = 1_000_000_000
attempts = st.tuples(
    st.integers(0, 2),  # worker
    st.sampled_from(["", *"abcdefghij", "x" * 257]),  # model
    st.sampled_from([0, 200, 400, 401, 404, 429, 500, 503]),
    st.sampled_from([0, 1, 9, 35, 59, 61, 200]),  # seconds since the attempt before
)


@given(st.lists(attempts, max_size=40), st.integers(0, 130))
def test_sums_and_last_failures_are_the_twins(given_attempts, after):
    outcomes, twin = testing.RecentOutcomes(), slow.RecentOutcomes()
    now = 1000 * SECOND
    for worker, model, status, seconds in given_attempts:
        now += seconds * SECOND
        outcomes.add(worker, model, status, now)
        twin.add(worker, model, status, now)
    now += after * SECOND
    sums = {worker: found for worker, found in outcomes.sums(now).items() if found[0]}
    expected = twin.sums(now)
    assert {worker: models for worker, (models, _) in sums.items()} == expected
    for worker, (_, (at_ns, status, model)) in sums.items():
        failure = twin.failures.get(worker)
        if failure is not None and len(failure[2]) > 256:
            failure = (*failure[:2], failure[2][:256])
        assert (at_ns, status, model) == (failure or (0, 0, ""))


@given(
    st.lists(st.integers(1, 2_000_000_000_000), min_size=1, max_size=50),
    st.sampled_from([0.01, 0.5, 0.95, 1]),
)
def test_a_quantile_is_within_a_bucket_of_the_true_one(nanos, share):
    true = sorted(nanos)[max(1, math.ceil(share * len(nanos))) - 1]
    within = min(max(true, 1_000_000), 741_000_000_000)
    found = testing.time_quantile(nanos, share)
    assert within / 2**0.5 <= found <= within * 2**0.5


def test_without_times_there_is_no_quantile():
    assert testing.time_quantile([], 0.5) == 0
