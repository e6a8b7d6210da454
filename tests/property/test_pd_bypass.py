"""The bypass of prefill against its slow twin, over any fleet and any load."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.pd_bypass import may_be_chosen
from vllm_router import _core_testing as testing

TOKENS = st.sampled_from([0, 1, 15, 16, 196, 255, 256, 257, 1024, 4096, 2**31 - 1])
COUNTS = st.integers(0, 6)
QUEUES = st.sampled_from([0, 1, 196, 3839, 3840, 3841, 4000, 4096, 100_000])
ROWS = st.lists(
    st.tuples(st.sampled_from([0.5, 1.0, 1.0, 2.0]), COUNTS, QUEUES, st.sampled_from([0, 256, 512]), TOKENS),
    min_size=1,
    max_size=6,
)


@given(ROWS, TOKENS, st.sampled_from([0, 256, 4096, 2**31 - 1]), st.integers(0, 2**64 - 1))
def test_the_choice_is_that_of_the_model(rows, uncached, queued, seed):
    expected = may_be_chosen(rows, uncached, queued)
    chosen = testing.choose_bypass(rows, uncached, queued, seed)
    # Of equals that are equally loaded any may be drawn, one with a longer queue and shorter outputs, too.
    if chosen is None:
        drawn = [testing.choose_bypass(rows, uncached, 2**32 - 1, seed)]
        assert not expected or any(one is not None and one[0] not in expected for one in drawn)
    else:
        assert chosen[0] in expected
        assert chosen[1] == rows[chosen[0]][4]


@given(ROWS, TOKENS, st.integers(0, 2**64 - 1))
def test_a_greater_threshold_lets_no_fewer_pass(rows, uncached, seed):
    if uncached and testing.choose_bypass(rows, uncached, 4096, seed) is not None:
        assert testing.choose_bypass(rows, 2**31 - 1, 4096, seed) is not None


@given(ROWS, st.integers(0, 2**64 - 1))
def test_without_a_threshold_none_passes(rows, seed):
    assert testing.choose_bypass(rows, 0, 2**31 - 1, seed) is None
