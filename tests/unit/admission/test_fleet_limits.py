"""cpp/admission/fleet_limits.h: what all routers admit together, and what a report cannot do."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.tenant_limits import MINUTE, MOST_PEER_DEBT, RateBucket
from vllm_router import _core_testing as testing

SECOND = 10**9
BURST = 10 * SECOND
RATE = 6_000  # tokens and requests per minute: 1,000 at once
LINES = f"tenant requests_per_minute={RATE} tokens_per_minute={RATE} concurrency=5 default"
OPEN = 5 * SECOND  # for so long a router's open requests count after it said so
ROUTERS = 3
TENANTS = st.sampled_from(["a", "b", "key:0123456789abcdef"])


class Fleet:
    """Routers that tell each other all at once."""

    def __init__(self, lines=LINES, routers=ROUTERS):
        self.routers = [testing.FleetLimits(lines) for _ in range(routers)]
        self.now = 0

    def tell(self, full=False):
        for number, router in enumerate(self.routers):
            report = router.tell(full, self.now)
            for other in self.routers:
                if report and other is not router:
                    other.hear(number, report, self.now, self.now)


@given(
    st.lists(st.tuples(st.integers(0, ROUTERS - 1), st.integers(1, 400), st.integers(0, SECOND)), max_size=60)
)
def test_routers_admit_together_what_one_would(story):
    fleet, slow = Fleet(), RateBucket(RATE, BURST)
    for at, amount, pause in story:
        got = fleet.routers[at].take_tokens("a", amount, fleet.now)
        wait = slow.take(amount, fleet.now)
        assert got == (None if wait == 0 else ("tenant_tokens_limited", wait))
        fleet.tell()
        fleet.now += pause
    for router in fleet.routers:
        used = router.read(fleet.now).get("a", (0, 0, 0, 0))[3]
        slow.drain(fleet.now)
        assert used == slow.used


STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, ROUTERS - 1), TENANTS),
    st.tuples(st.just("begin"), st.integers(0, ROUTERS - 1), TENANTS),
    st.tuples(st.just("end"), st.integers(0, ROUTERS - 1), TENANTS),
    st.tuples(st.just("lose"), st.integers(0, ROUTERS - 1), TENANTS),
)


@given(st.lists(STEPS, max_size=80))
def test_no_tenant_has_more_requests_open_than_its_limit_and_those_of_a_lost_router_come_back(story):
    fleet = Fleet()
    opened = [dict.fromkeys(["a", "b", "key:0123456789abcdef"], 0) for _ in fleet.routers]
    for what, at, tenant in story:
        everywhere = sum(one[tenant] for one in opened)
        if what == "begin":
            rejected = fleet.routers[at].begin(tenant, fleet.now)
            assert (rejected is None) == (everywhere < 5)
            opened[at][tenant] += rejected is None
        elif what == "end" and opened[at][tenant]:
            fleet.routers[at].end(tenant, fleet.now)
            opened[at][tenant] -= 1
        elif what == "lose":  # another life of the router, which had requests open
            fleet.tell(full=True)
            fleet.routers[at] = testing.FleetLimits(LINES)
            fleet.now += OPEN
            for number, router in enumerate(fleet.routers):
                report = router.tell(True, fleet.now)
                for other in fleet.routers:
                    if other is not router:
                        other.hear(number, report, fleet.now, fleet.now)
            opened[at] = dict.fromkeys(opened[at], 0)
            fleet.now += 1
            for router in fleet.routers:
                router.turn(True, ROUTERS, fleet.now)
        fleet.tell()


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 400), st.booleans()), max_size=30))
def test_nothing_that_is_told_gives_back_what_others_used(story):
    """In the end all that was used is told, and no report takes back what an earlier one said."""
    one, other = testing.FleetLimits(LINES), testing.FleetLimits(LINES)
    used = before = 0
    for reserved, actual, tells in story:
        if one.take_tokens("a", reserved, 0) is None:
            one.settle_tokens("a", reserved, actual, 0)
            used += actual
        if tells:
            other.hear(1, one.tell(False, 0), 0, 0)
        heard = other.read(0).get("a", (0, 0, 0, 0))[3]
        assert heard >= before
        before = heard
    other.hear(1, one.tell(False, 0), 0, 0)
    most = BURST + MOST_PEER_DEBT
    assert other.read(0).get("a", (0, 0, 0, 0))[3] == min(used * MINUTE // RATE, most)


@given(st.integers(1, 7), st.integers(1, 1_500), st.integers(0, 20 * SECOND))
def test_a_part_of_a_limit_admits_that_part(parts, amount, time):
    """And a request that is more than a part, and no more than the whole, passes in its turn."""
    router = testing.FleetLimits(LINES)
    router.turn(False, parts, 0)
    passed = 0
    for now in range(0, time + 1, SECOND // 4):
        while router.take_tokens("a", amount, now) is None:
            passed += amount
    if amount > RATE // 6:
        assert router.take_tokens("a", amount, time) == ("tenant_tokens_limited", None)
        assert passed == 0
    else:
        share = (RATE // 6 + RATE * time // MINUTE) // parts
        assert share - amount - 1 <= passed <= share + amount


@given(st.binary(max_size=60))
def test_bytes_that_are_no_report_change_nothing(report):
    router = testing.FleetLimits(LINES)
    router.take_tokens("a", 100, 0)
    before = router.read(0)
    router.hear(1, report, 0, 0)
    counts = router.counts()
    if counts["malformed"] or not counts["heard"]:
        assert router.read(0) == before
    assert counts["malformed"] <= 1


def told(*tenants):
    """The report of these, each with its requests, tokens and open requests."""

    def varint(value):
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    report = b""
    for name, requests, tokens, opened in tenants:
        row = b"\x0a" + varint(len(name)) + name.encode()
        row += b"\x10" + varint(requests) + b"\x18" + varint(tokens) + b"\x20" + varint(opened)
        report += b"\x0a" + varint(len(row)) + row
    return report


def test_a_lie_uses_a_limit_up_and_costs_no_more_than_a_minute():
    router = testing.FleetLimits(LINES)
    for _ in range(100):
        router.hear(1, told(("a", 2**60, 2**60, 2**60)), 0, 0)
    assert router.take_tokens("a", 1, 0) == ("tenant_tokens_limited", MOST_PEER_DEBT + MINUTE // RATE)
    assert router.take_tokens("a", 1, MOST_PEER_DEBT + MINUTE // RATE) is None
    assert router.begin("a", OPEN) == ("tenant_concurrency", 0)
    router.turn(True, 2, OPEN + 1)
    assert router.begin("a", MINUTE * 2) is None
    assert router.begin("b", 0) is None
    # Names that no tenant has, and what has no limit here.
    router.hear(1, told(("x y", 1, 1, 1), ("other", 1, 1, 1), ("", 1, 1, 1)), 0, 0)
    assert router.counts()["ignored"] == 3


def test_what_was_told_long_ago_is_paid_by_now():
    """A router that starts, or was cut off, reads half a minute of reports at once."""
    router = testing.FleetLimits(LINES)
    now = 100 * SECOND
    for age in range(30, 0, -1):
        router.hear(1, told(("a", 1, 100, 3)), now - age * SECOND, now)
    assert router.read(now) == {"a": (0, 3, 0, 0)}
    router.hear(1, told(("a", 1, 100, 3)), now, now)
    assert router.read(now)["a"] == (0, 3, MINUTE // RATE, 100 * MINUTE // RATE)
    for place in range(1_000):  # an old claim counts no longer
        router.hear(2, told((f"t{place}", 0, 0, 9)), now - 60 * SECOND, now)
    router.turn(True, 3, now)
    assert [row[1] for row in router.read(now).values()] == [3]


def test_a_part_of_a_limit_is_not_used_up_by_what_others_had_open():
    router = testing.FleetLimits(LINES)
    report = told(("a", 0, 0, 5), ("b", 0, 0, 1))
    router.hear(1, report, 0, 0)
    assert router.begin("a", 0) == ("tenant_concurrency", 0)
    router.turn(False, 2, 0)
    assert router.begin("a", 0) is None
    assert [row[:2] for row in router.read(0).values()] == [(1, 0)]
    router.turn(True, 2, 1)
    router.hear(1, report, 1, 1)
    assert {tenant: row[1] for tenant, row in router.read(1).items()} == {"a": 5, "b": 1}
    assert router.begin("a", 1) == ("tenant_concurrency", 0)


def test_a_hundred_thousand_names_take_neither_the_table_nor_a_report():
    lines = f"{LINES}\ntenant tokens_per_minute={RATE} named"
    router, other = (
        testing.FleetLimits(lines, max_tenants=4_096),
        testing.FleetLimits(lines, max_tenants=4_096),
    )
    for place in range(100_000):
        router.take_tokens(f"t{place}", 1, 0)
    router.take_tokens("named", 1, 0)
    report = router.tell(False, 0)
    assert len(report) <= 128 << 10
    assert report.count(b"named") == 1  # first of all
    assert router.counts()["told"] == 1_024
    other.hear(1, report, 0, 0)
    for start in range(0, 100_000, 1_000):
        other.hear(2, told(*((f"x{place}", 1, 1, 1) for place in range(start, start + 1_000))), 0, 0)
    # Half of the table, and the tenant that the operator named.
    assert 1_024 < len(other) <= 4_096 // 2 + 1
    assert other.counts()["no_room"] > 90_000
    assert other.read(0)["named"][3] == MINUTE // RATE
    # The other half is there for those who come.
    assert all(other.take_tokens(f"y{place}", 1, 0) is None for place in range(1_500))
    assert len(other) > 3_000
