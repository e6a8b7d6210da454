"""RedisHealth against its slow twin: whatever connections and probes report, at any time."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import redis_health as twin
from vllm_router import _core_testing as testing

SECOND = 10**9


@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["opened", "worked", "failed", "failed", "begin", "begin", "works", "fails", "fails"]
            ),
            st.sampled_from([0, 0, 1, 2, 16, 30, 59, 60]),
        ),
        max_size=60,
    ),
)
def test_it_is_in_the_state_of_its_twin(failures, story):
    health, slow = testing.RedisHealth(failures), twin.RedisHealth(failures)
    now = 0
    for what, passes in story:
        now += passes
        if what == "begin":
            assert health.begin_probe(now * SECOND) == slow.begin_probe(now)
        elif what in ("works", "fails"):
            health.end_probe(what == "works", now * SECOND)
            slow.end_probe(what == "works", now)
        elif what == "worked":
            health.worked()
            slow.worked()
        else:
            getattr(health, what)(now * SECOND)
            getattr(slow, what)(now)
        assert health.state == slow.state
        assert health.may_be_used == (slow.state in ("connecting", "up"))
        if slow.state == "down":
            assert health.next_probe_ns == slow.next_probe * SECOND
