"""cpp/disaggregation/kv_claim.h: blocks held at a prefill worker are forgotten on no path."""

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize("end", ["redeemed", "rejected", "expired", "orphaned"])
def test_a_claim_ends_once_however_often_it_is_dropped(end):
    claims = testing.KvClaimHarness()
    claim = claims.make("blocks")
    claims.advance(5)
    claims.end(claim, end)
    assert not claims.holds(claim)
    claims.drop(claim)
    assert claims.ends == [(end, "blocks", 5)]
    assert claims.owners == 0


def test_a_claim_that_is_dropped_is_orphaned_with_its_parameters_and_its_age():
    claims = testing.KvClaimHarness()
    claim = claims.make('{"remote_block_ids":[[11,12]]}')
    claims.advance(7_000)
    claims.drop(claim)
    assert claims.ends == [("orphaned", '{"remote_block_ids":[[11,12]]}', 7_000)]
    assert claims.owners == 0


def test_a_claim_that_is_moved_ends_where_it_went():
    claims = testing.KvClaimHarness()
    first = claims.make("blocks")
    second = claims.move(first)
    claims.drop(first)
    assert claims.ends == []
    assert claims.parameters(second) == "blocks"
    claims.end(second, "redeemed")
    assert claims.ends == [("redeemed", "blocks", 0)]


def test_a_claim_that_is_assigned_over_is_orphaned():
    claims = testing.KvClaimHarness()
    old, new = claims.make("old"), claims.make("new")
    claims.assign(to=old, source=new)
    assert claims.ends == [("orphaned", "old", 0)]
    assert (claims.holds(old), claims.holds(new)) == (True, False)
    claims.assign(to=old, source=old)
    assert claims.parameters(old) == "new"


def test_a_reused_claim_lives_on_in_the_next_at_its_age():
    claims = testing.KvClaimHarness()
    first = claims.make("blocks")
    claims.advance(3)
    second = claims.reuse(first)
    assert claims.ends == [("reused", "", 3)]
    assert not claims.holds(first)
    claims.advance(4)
    claims.drop(second)
    assert claims.ends[1:] == [("orphaned", "blocks", 7)]
