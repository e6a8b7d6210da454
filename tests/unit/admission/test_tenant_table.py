"""cpp/admission/tenant_table.h: a meter for each tenant, in bounded memory.

Its twin: tests/models/tenant_limits.py.
"""

import pytest

from vllm_router import _core_testing as testing

SECOND = 10**9


def test_a_tenant_has_one_meter_on_all_threads():
    table = testing.TenantTable(10)
    holds = [table.find("a", thread=thread) for thread in (0, 1, 0, 1)]
    assert len({hold.number for hold in holds}) == 1
    assert table.find("b").number != holds[0].number
    assert len(table) == 2


def test_a_meter_that_is_held_is_never_another_tenant_s():
    table = testing.TenantTable(1)
    hold = table.find("a")
    assert table.find("b").is_shared
    hold.release()
    other = table.find("b")
    assert not other.is_shared
    assert other.number == table.find("b", thread=1).number


def test_a_meter_with_a_debt_is_never_another_tenant_s():
    table = testing.TenantTable(1)
    hold = table.find("a")
    assert hold.take_tokens(5, now_ns=0)
    hold.release()
    assert table.find("b", now_ns=5 * SECOND - 1).is_shared
    assert not table.find("a", now_ns=5 * SECOND - 1).is_shared
    assert not table.find("b", now_ns=5 * SECOND).is_shared


def test_a_thread_that_knows_a_former_entry_finds_the_new_one():
    table = testing.TenantTable(1)
    table.find("a", thread=1).release()
    table.find("b", thread=0).release()  # it has the meter of "a" from now on
    again = table.find("a", thread=1)
    assert not again.is_shared
    assert table.find("b", thread=0).is_shared


def test_tenants_that_share_a_meter_share_its_limit():
    table = testing.TenantTable(1)
    keeper = table.find("keeper")
    numbers = {}
    for tenant in range(10_000):
        hold = table.find(f"t{tenant}")
        assert hold.is_shared
        numbers.setdefault(hold.number, []).append(tenant)
    assert len(numbers) == 256
    first, second = next(tenants for tenants in numbers.values() if len(tenants) > 1)[:2]
    assert table.find(f"t{first}").take_tokens(60, 0)
    assert not table.find(f"t{second}").take_tokens(1, 0)
    assert table.shared_finds == 10_002
    assert not keeper.is_shared


@pytest.mark.parametrize("max_tenants", [1, 100, 1023, 1024, 5000])
def test_no_number_of_tenants_makes_it_larger(max_tenants):
    table = testing.TenantTable(max_tenants)
    for number in range(3 * max_tenants):
        table.find(f"t{number}").begin(0)  # each stays open
    assert len(table) <= max_tenants
    # The names are not spread over the shards in equal parts.
    assert table.shared_finds >= 2 * max_tenants


def test_invented_tenants_take_nothing_from_one_with_a_debt():
    table = testing.TenantTable(100)
    assert table.find("honest").take_tokens(60, now_ns=0)
    for number in range(10_000):
        table.find(f"invented-{number}", now_ns=0).release()
    assert table.shared_finds == 0  # they are done, so each takes the place of another
    assert not table.find("honest", now_ns=0).take_tokens(1, now_ns=0)


def test_a_named_tenant_has_a_meter_of_its_own_however_full_the_table_is():
    table = testing.TenantTable(1)
    keeper = table.find("keeper")
    keeper.take_tokens(60, 0)
    assert table.find("other", 0).is_shared
    hold = table.find("search", 0, named=True)
    assert not hold.is_shared
    number = hold.number
    hold.release()
    # It is the same as a new one, and no other's.
    assert [table.find(f"t{tenant}", 0).is_shared for tenant in range(100)] == [True] * 100
    assert table.find("search", 0, thread=1, named=True).number == number
    assert len(table) == 2


def test_a_tenant_that_is_named_later_keeps_its_meter():
    table = testing.TenantTable(1)
    number = table.find("search").number
    assert table.find("search", thread=1, named=True).number == number
    assert table.find("other").is_shared


def test_rows_have_the_tenants_with_something_open_first():
    table = testing.TenantTable(10)
    for tenant in ("idle", "debt", "one", "two", "also-one"):
        table.find(tenant)
    table.find("debt").take_tokens(7, 0)
    for tenant in ("one", "two", "two", "also-one"):
        table.find(tenant).begin(0)
    assert table.read(now_ns=SECOND) == [
        ("two", 2, 0, 0),
        ("also-one", 1, 0, 0),
        ("one", 1, 0, 0),
        ("debt", 0, 0, 6 * SECOND),
    ]
    assert [name for name, *_ in table.read(now_ns=SECOND, most=2)] == ["two", "also-one"]
