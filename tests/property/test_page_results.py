"""cpp/shared_pool/page_results.h against its slow twin."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.page_results import MS, PageResults
from vllm_router import _core_testing as testing

STEPS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
        st.sampled_from([None, "absent", "first", "whole"]),
        st.sampled_from([0, 1, 199, 200, 500, 1000]),
    ),
    max_size=60,
)


@given(most=st.integers(1, 4), steps=STEPS)
def test_pages_are_known_as_long_as_in_the_slow_twin(most, steps):
    results, twin = testing.PageResults(most), PageResults(most)
    now = 0
    for page, state, pause_ms in steps:
        now += pause_ms * MS
        if state is None:
            assert results.find(page, now).name == twin.find(page, now)
        else:
            results.store(page, testing.PageState.__members__[state], now)
            twin.store(page, state, now)
        assert len(results) == len(twin.entries)
