"""cpp/events/cache_audit.h: too many blocks, and enough of them."""

import itertools

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

    def settle(self):
        for _ in range(7):
            self.check(990)
        assert self.trust() == "settled"


@pytest.mark.parametrize(("known", "drops"), [(1000, False), (1020, False), (1021, True)])
def test_more_blocks_than_the_cache_has_are_dropped(known, drops):
    audit = Audit()
    assert audit.check(known) == drops
    assert audit.trust("exact") == ("partial" if drops else "exact")


def test_a_capacity_that_is_unknown_proves_nothing():
    audit = Audit()
    assert not any(audit.check(10**9, usable=0) for _ in range(10))
    assert (audit.trust(), audit.trust("exact")) == ("partial", "exact")


def test_what_does_not_help_is_repeated_ever_more_rarely():
    audit = Audit()
    times = [audit.now // SECOND for _ in range(200) if audit.check(2000)]
    pauses = [later - before for before, later in itertools.pairwise(times)]
    assert pauses == [10, 20, 40, 80, 160, *[300] * 5]
    assert audit.trust("exact") == "partial"


def test_what_helped_makes_the_source_exact_again():
    audit = Audit()
    assert audit.check(2000)
    assert not audit.check(900)
    assert audit.trust("exact") == "exact"


def test_the_pause_is_short_again_after_ten_minutes_without():
    audit = Audit()
    assert [audit.check(2000) for _ in range(4)] == [True, True, False, True]
    for _ in range(60):
        audit.check(500)
    assert [audit.check(2000) for _ in range(3)] == [True, True, False]


def test_a_full_cache_settles_in_a_minute():
    audit = Audit()
    for _ in range(6):
        audit.check(980)
        assert audit.trust() == "partial"
    audit.check(980)
    states = ["partial", "exact", "waiting"]
    assert [audit.trust(state) for state in states] == ["settled", "exact", "waiting"]


def test_a_minute_means_all_of_it():
    audit = Audit()
    for known in [980] * 6 + [979] + [980] * 6:
        audit.check(known)
        assert audit.trust() == "partial"


@pytest.mark.parametrize(("known", "trust"), [(900, "settled"), (899, "partial"), (1021, "partial")])
def test_it_stays_settled_while_the_cache_is_nearly_full(known, trust):
    audit = Audit()
    audit.settle()
    audit.check(known)
    assert audit.trust() == trust
    audit.check(990)
    assert audit.trust() == trust


def test_a_lost_batch_ends_it_at_once():
    audit = Audit()
    audit.settle()
    assert audit.trust(gaps=GAPS + 1) == "partial"
    for _ in range(6):
        audit.check(990, gaps=GAPS + 1)
        assert audit.trust(gaps=GAPS + 1) == "partial"
    audit.check(990, gaps=GAPS + 1)
    assert audit.trust(gaps=GAPS + 1) == "settled"
