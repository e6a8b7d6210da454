"""cpp/index/coverage.h against a dict of blocks."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

LENGTH = 24
CHANGES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, LENGTH - 1), st.integers(1, LENGTH)),
    max_size=40,
)


def cuts(slow):
    found = []
    for tier in range(3):
        depth = 0
        while any(fast <= tier for fast in slow.get(depth, ())):
            depth += 1
        found.append(depth)
    return found


@given(st.integers(0, LENGTH), CHANGES)
def test_it_agrees_with_a_dict_of_blocks(leading, changes):
    coverage = testing.Coverage.leading(leading)
    slow = {block: {0} for block in range(leading)}
    for add, tier, begin, size in changes:
        end = min(begin + size, LENGTH)
        before, held = {b: set(t) for b, t in slow.items()}, set(slow)
        for block in range(begin, end):
            tiers = slow.setdefault(block, set())
            tiers.add(tier) if add else tiers.discard(tier)
            if not tiers:
                del slow[block]
        on_tier = sum((tier in before.get(b, ())) != (tier in slow.get(b, ())) for b in range(LENGTH))
        change = coverage.add(tier, begin, end) if add else coverage.remove(tier, begin, end)
        assert change == (on_tier, len(held ^ set(slow)))
        assert coverage.cuts == cuts(slow)
        assert coverage.end == max(slow, default=-1) + 1
        assert coverage.count() == len(slow)
        assert [coverage.count_on(t) for t in range(3)] == [
            sum(t in tiers for tiers in slow.values()) for t in range(3)
        ]
        assert coverage.empty == (not slow)
        assert coverage.is_leading == all(tiers == {0} and b < len(slow) for b, tiers in slow.items())


def test_three_depths_are_nested():
    #   GPU GPU host GPU: two without a gap on the GPU, four on the GPU or in host memory
    coverage = testing.Coverage.leading(4)
    coverage.remove(0, 2, 3)
    coverage.add(1, 2, 3)
    assert coverage.cuts == [2, 4, 4]


def test_the_order_of_store_and_remove_does_not_matter():
    coverage = testing.Coverage.leading(8)
    coverage.add(1, 4, 8)
    coverage.remove(0, 4, 8)
    assert coverage.cuts == [4, 8, 8]
    coverage.add(0, 4, 8)
    coverage.remove(1, 4, 8)
    assert (coverage.cuts, coverage.is_leading) == ([8, 8, 8], True)
