"""cpp/response_cache/hit_rate.h, beside a list of all lookups."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.hit_rate import STEP_NS, STEPS
from tests.models.hit_rate import HitRate as Model
from vllm_router import _core_testing as testing


def test_without_a_lookup_it_is_0():
    assert testing.HitRate().of(7) == 0


def test_what_is_older_than_five_minutes_does_not_count():
    rate = testing.HitRate()
    rate.count(False, 0)
    rate.count(True, STEP_NS)
    assert rate.of((STEPS - 1) * STEP_NS) == 0.5
    assert rate.of(STEPS * STEP_NS) == 1
    assert rate.of((STEPS + 1) * STEP_NS) == 0


@given(st.lists(st.tuples(st.integers(0, 3 * STEP_NS), st.booleans(), st.booleans()), max_size=200))
def test_it_is_that_of_the_list(moves):
    rate, model, now = testing.HitRate(), Model(), 0
    for ahead, jumps, hit in moves:
        now += ahead + (STEPS * STEP_NS // 2 if jumps else 0)
        rate.count(hit, now)
        model.count(hit, now)
        assert rate.of(now) == model.of(now)
        assert rate.of(now + 7 * STEP_NS) == model.of(now + 7 * STEP_NS)
