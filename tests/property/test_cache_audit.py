"""cpp/events/cache_audit.h against its slow twin, for any course of a cache's share and of lost batches."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.cache_audit import CacheAudit
from vllm_router import _core_testing as testing

SECOND = 10**9
USABLE = 1000
KNOWN = st.one_of(st.sampled_from([899, 900, 979, 980, 1000, 1020, 1021]), st.integers(0, 2000))
STEPS = st.tuples(
    st.integers(1, 12),  # times in a row
    KNOWN,
    st.sampled_from([USABLE] * 9 + [0]),
    st.sampled_from([0] * 9 + [1]),  # new gaps
    st.sampled_from([10, 10, 10, 11, 61, 700]),  # seconds since the check before
)


@settings(max_examples=400)
@given(st.lists(STEPS, max_size=20))
def test_it_judges_as_the_slow_twin_does(steps):
    audit, twin = testing.CacheAudit(), CacheAudit()
    now, gaps = 5, 0
    for times, known, usable, more, seconds in steps:
        gaps += more
        for _ in range(times):
            now += seconds
            assert audit.is_due(now * SECOND)
            assert audit.check(known, usable, gaps, now * SECOND) == twin.check(known, usable, gaps, now)
            assert not audit.is_due((now + 9) * SECOND)
            for trust in ("waiting", "exact", "partial"):
                for seen in (gaps, gaps + 1):
                    assert audit.judge(trust, seen) == twin.judge(trust, seen)
