"""RetryBudget against its slow twin: requests and retries of several threads, at any time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import retry_budget as twin
from vllm_router import _core_testing as testing

THREADS = 3


@given(
    st.sampled_from([0.0, 0.1, 0.2, 1.0, 3.0]),
    st.lists(
        st.tuples(
            st.sampled_from(["request", "requests", "retry", "retries"]),
            st.integers(0, THREADS - 1),
            st.sampled_from([0, 0, 0, 0.3, 1, 2.5, 9, 10, 100]),
        ),
        max_size=100,
    ),
)
def test_the_budget_of_all_threads_is_its_twin_s(share, story):
    budget, slow = testing.RetryBudget(share), twin.RetryBudget(share)
    threads = [testing.RetryBudgetThread(budget) for _ in range(THREADS)]
    now = 1000.0
    for what, thread, passes in story:
        now += passes
        for _ in range(40 if what in ("requests", "retries") else 1):
            if what.startswith("request"):
                threads[thread].count_request(now)
                slow.count_request(now)
            else:
                assert threads[thread].take(now) == slow.take(now)
