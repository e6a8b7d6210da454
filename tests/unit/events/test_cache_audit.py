"""cpp/events/cache_audit.h: too many blocks, and enough of them."""

import pytest

from vllm_router import _core_testing as testing

SECOND = 10**9
GAPS = 3


class Audit:
    """Checks every 10 s against a cache of 1,000 blocks."""

    def __init__(self):
        self.audit = testing.CacheAudit()
        self.now = 0

    def check(self, known, usable=1000, gaps=GAPS):
        assert self.audit.is_due(self.now)
        dropped = self.audit.check(known, usable, gaps, self.now)
        self.now += 10 * SECOND
        assert not self.audit.is_due(self.now - 1)
        return dropped

    def trust(self, state="partial", gaps=GAPS):
        return self.audit.judge(state, gaps)


@pytest.mark.parametrize(("known", "drops"), [(1000, False), (1020, False), (1021, True)])
def test_more_blocks_than_the_cache_has_are_dropped(known, drops):
    audit = Audit()
    assert audit.check(known) == drops
    assert audit.trust("exact") == ("partial" if drops else "exact")


def test_a_full_cache_settles_in_a_minute():
    audit = Audit()
    for _ in range(6):
        audit.check(980)
        assert audit.trust() == "partial"
    audit.check(980)
    states = ["partial", "exact", "waiting"]
    assert [audit.trust(state) for state in states] == ["settled", "exact", "waiting"]
