"""cpp/receipts/seqlock_ring.h on one thread; tests/stress/receipts.cc has a writer beside readers."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


# number   4  5  2  3      5, 4, 3 and 2 are kept of the 6 that were added
@given(st.integers(1, 9) | st.integers(60, 140), st.integers(0, 300))
def test_the_last_values_are_kept(capacity, count):
    ring = testing.SeqlockRing(capacity)
    for number in range(count):
        ring.add(number * 7)
    assert ring.added == count
    kept = {number: ring.read(number) for number in range(count + 2)}
    assert kept == {
        number: (number, number * 7) if count - capacity <= number < count else None
        for number in range(count + 2)
    }
