"""BodyPace against its slow twin, which sums up what came in each step."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import body_pace as models
from vllm_router import _core_testing as testing

WAITS = st.integers(0, 10**9) | st.sampled_from([10**8, 10**8 - 1, 10**8 + 1, 3 * 10**9, 10**10])
EVENTS = st.lists(st.integers(0, 300) | st.tuples(WAITS), max_size=60)


@given(st.sampled_from([0, 1, 10, 1000, 2**27]), st.sampled_from([3000, 300, 30]), EVENTS)
def test_the_pace_is_what_came_in_the_time_waited_for_it(rate, window_ms, events):
    real, slow = testing.BodyPace(rate, window_ms), models.BodyPace(rate, window_ms)
    for event in events:
        if isinstance(event, tuple):
            real.waited(event[0])
            slow.waited(event[0])
        else:
            real.arrived(event)
            slow.arrived(event)
        assert real.rate == slow.rate
        assert (real.ms_to_next_step == 0) == (rate == 0)
