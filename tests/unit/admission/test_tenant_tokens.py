"""cpp/admission/tenant_tokens.h: tokens by tenant in bounded memory, and rows that never decrease."""

import random

import pytest

from vllm_router import _core_testing as testing


def add(tokens, tenant, prompt, cached=0, completion=0, configured=False):
    tokens.add(tenant, (prompt, cached, completion), configured)


def summed(rows):
    return tuple(sum(counts[kind] for _, counts in rows) for kind in range(3))


def test_tokens_add_up_by_tenant():
    tokens = testing.TenantTokens(10)
    add(tokens, "a", 10, 4, 1)
    add(tokens, "b", 5)
    add(tokens, "a", 1, 1, 1)
    assert tokens.table() == {"a": (11, 5, 2), "b": (5, 0, 0)}
    assert tokens.total() == (16, 5, 2)
    assert tokens.scrape() == [("a", (11, 5, 2)), ("b", (5, 0, 0)), ("other", (0, 0, 0))]


def test_a_full_table_forgets_the_one_that_was_seen_least_recently():
    tokens = testing.TenantTokens(3)
    for name in "abcad":
        add(tokens, name, 1)
    assert tokens.table() == {"a": (2, 0, 0), "c": (1, 0, 0), "d": (1, 0, 0)}
    assert tokens.total() == (5, 0, 0)


@pytest.mark.parametrize("size", [1, 2, 7, 1023])
def test_the_table_is_what_a_slow_twin_keeps(size):
    """A list in the order of use."""
    dice = random.Random(size)
    tokens, twin = testing.TenantTokens(size), {}
    for _ in range(20 * min(size, 200)):
        name = f"t{dice.randrange(2 * size)}"
        add(tokens, name, 1)
        twin[name] = twin.pop(name, 0) + 1
        if len(twin) > size:
            del twin[next(iter(twin))]
    assert tokens.table() == {name: (count, 0, 0) for name, count in twin.items()}


def test_invented_tenants_take_no_more_memory_and_a_busy_one_keeps_its_row():
    """100,000 names from a gateway that passes on what its clients call themselves."""
    tokens = testing.TenantTokens(2048)
    for number in range(100_000):
        add(tokens, f"invented-{number}", 1)
        if number % 100 == 0:
            add(tokens, "honest", 1000, completion=10)
    table = tokens.table()
    assert len(table) <= 2048
    assert table["honest"] == (1_000_000, 0, 10_000)
    rows = tokens.scrape()
    assert len(rows) == 65
    assert dict(rows)["honest"] == (1_000_000, 0, 10_000)
    assert rows[-1][0] == "other"
    assert summed(rows) == tokens.total() == (1_100_000, 0, 10_000)


def test_configured_tenants_have_rows_however_little_they_do():
    tokens = testing.TenantTokens(1000, others=2)
    for number in range(100):
        add(tokens, f"busy-{number}", 1000)
    for number in range(10):
        add(tokens, f"mine-{number}", 1, configured=True)
    names = [name for name, _ in tokens.scrape()]
    assert names == ["busy-0", "busy-1", *(f"mine-{number}" for number in range(10)), "other"]


def test_a_tenant_that_gets_its_row_late_begins_with_what_came_since():
    tokens = testing.TenantTokens(100, others=1)
    add(tokens, "first", 10)
    add(tokens, "second", 9)
    assert tokens.scrape() == [("first", (10, 0, 0)), ("other", (9, 0, 0))]
    add(tokens, "second", 11)  # 20 are not more than twice 10
    assert tokens.scrape() == [("first", (10, 0, 0)), ("other", (20, 0, 0))]
    add(tokens, "second", 2)
    assert tokens.scrape() == [("second", (2, 0, 0)), ("other", (20, 0, 0))]
    add(tokens, "first", 5)  # of the rest again
    assert tokens.scrape() == [("second", (2, 0, 0)), ("other", (25, 0, 0))]


def test_a_tenant_that_is_no_longer_configured_has_a_row_by_what_it_does():
    tokens = testing.TenantTokens(100, others=1)
    add(tokens, "mine", 1, configured=True)
    add(tokens, "busy", 10)
    assert [name for name, _ in tokens.scrape()] == ["busy", "mine", "other"]
    add(tokens, "mine", 1)
    assert [name for name, _ in tokens.scrape()] == ["busy", "other"]


@pytest.mark.parametrize("size", [1, 5, 40, 1024])
@pytest.mark.parametrize("others", [1, 3])
def test_no_row_decreases_while_it_is_there(size, others):
    """And what all rows ever grew by is never more than what was counted."""
    dice = random.Random(1000 * size + others)
    tokens = testing.TenantTokens(size, others)
    before, grown = {}, 0
    for _ in range(300):
        for _ in range(dice.randrange(20)):
            name = f"t{int(dice.expovariate(0.1))}"
            add(tokens, name, dice.randrange(50), configured=name in ("t3", "t30"))
        rows = dict(tokens.scrape())
        for name, counts in rows.items():
            if name in before:
                assert counts >= before[name]
            grown += counts[0] - (before[name][0] if name in before else 0)
        assert len([name for name in rows if name not in ("t3", "t30", "other")]) <= others
        assert grown <= tokens.total()[0]
        before = rows


def test_rejections_have_rows_as_tokens_have():
    tokens = testing.TenantTokens(100, others=1)
    for tenant, reason in [("a", 0), ("a", 2), ("a", 2), ("b", 1)]:
        tokens.reject(tenant, reason)
    add(tokens, "a", 10)
    assert tokens.scrape_rejected() == {"a": [1, 0, 2], "other": [0, 1, 0]}
    tokens.reject("a", 1)
    tokens.reject("b", 1)
    assert tokens.scrape_rejected() == {"a": [1, 1, 2], "other": [0, 2, 0]}
    assert tokens.scrape() == [("a", (10, 0, 0)), ("other", (0, 0, 0))]
