"""cpp/index/claim_table.h: claims, their slots, and who hears when one is used again."""

from vllm_router import _core_testing as testing


def test_a_claim_is_open_until_it_is_confirmed_or_dropped():
    table = testing.ClaimTable()
    (first, _), (second, _) = table.add(1), table.add(2)
    assert (table.find(first), table.find(second)) == (1, 2)
    table.confirm(first)
    table.drop(second)
    assert (table.find(first), table.find(second)) == (None, None)
    assert not table.is_open(first)


def test_the_next_user_of_a_slot_hears_of_a_confirmed_claim_and_of_no_other():
    table = testing.ClaimTable()
    confirmed, _ = table.add(1)
    table.confirm(confirmed)
    again, settled = table.add(2)
    assert settled == 1
    assert again != confirmed
    assert table.find(confirmed) is None
    table.drop(again)
    assert table.add(3)[1] is None
    assert table.slots == 1


def test_a_confirmation_that_comes_late_is_not_another_claims():
    table = testing.ClaimTable()
    old, _ = table.add(1)
    table.drop(old)
    new, _ = table.add(2)
    table.confirm(old)
    table.confirm(0)
    assert table.find(new) == 2


def test_when_all_slots_are_open_there_is_no_claim():
    table = testing.ClaimTable()
    claims = [table.add(number)[0] for number in range(testing.MAX_CLAIMS)]
    assert len(set(claims)) == testing.MAX_CLAIMS
    assert table.add(0) == (0, None)
    table.drop_if_even()
    assert [table.find(claim) for claim in claims[:4]] == [None, 1, None, 3]
    assert table.add(7)[0] != 0
