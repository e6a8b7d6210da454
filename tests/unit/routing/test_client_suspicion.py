"""cpp/routing/client_suspicion.h: by what evidence a client is restricted, told through the quarantine."""

from tests.fakes.losses import OTHER, POISON, kill, lose
from vllm_router import _core_testing as testing


def test_a_client_with_two_of_them_has_one_request_at_a_time():
    quarantine = testing.RequestQuarantine()
    assert kill(quarantine, (1, 2), POISON) == [("request-1", 0.0)]
    assert kill(quarantine, (3, 4), OTHER) == [("request-2", 60.0)]
    assert quarantine.enter(8, 1.0) == "free"
    assert [quarantine.enter(7, 1.0) for _ in range(2)] == ["entered", "busy"]
    quarantine.leave(7)
    assert quarantine.enter(7, 59.0) == "entered"
    quarantine.leave(7)
    assert quarantine.enter(7, 60.0) == "free"
    assert not quarantine.active


def test_each_further_host_doubles_the_time():
    """Row 2: a body that changes costs one host a minute for ever."""
    quarantine = testing.RequestQuarantine()
    kill(quarantine, (1, 2), 1)
    kill(quarantine, (3, 4), 2)
    lose(quarantine, 5, 3, now=1.0)
    assert quarantine.enter(7, 1.5) == "busy"  # the host may die
    quarantine.report_down(5, 2.0)
    assert [quarantine.enter(7, 2.0 + after) for after in (119.5, 120.0)] == ["busy", "entered"]
    quarantine.leave(7)
    lose(quarantine, 6, 4, now=130.0)
    quarantine.report_down(6, 130.0)
    assert [quarantine.enter(7, 130.0 + after) for after in (239.5, 240.0)] == ["busy", "entered"]


def test_what_two_hosts_die_with_is_one_offence():
    """Row 2: of 80 requests a few were on both hosts, and two sufficed for a restriction."""
    quarantine = testing.RequestQuarantine()
    for digest in range(13):
        lose(quarantine, 1, digest)
    quarantine.report_down(1, 0.0)
    for digest in (0, 5, 9, *range(20, 33)):
        lose(quarantine, 2, digest, now=1.0)
    assert [restricted for _, restricted in quarantine.report_down(2, 1.0)] == [0.0, 0.0, 0.0]
    assert quarantine.counts(1.0)[:2] == (3, 0)
    assert quarantine.enter(7, 1.0) == "free"


def test_many_crashes_are_no_evidence_against_a_client_with_many_requests():
    """Row 2: it is on each host that dies, and most of what it loses does not die again."""
    quarantine = testing.RequestQuarantine()
    for host in range(1, 20):
        before = [100 * (host - 1) + 2 * number for number in range(5)] if host > 1 else []
        for digest in (*before, *range(100 * host, 100 * host + 10)):
            lose(quarantine, host, digest, now=float(host))
        quarantine.report_down(host, float(host))
    assert quarantine.counts(20.0)[0] > 20
    assert quarantine.counts(20.0)[1] == 0


def test_the_sender_of_the_youngest_request_is_restricted_among_many():
    """Row 2: its other requests hide it, but each host dies of what came last."""
    quarantine = testing.RequestQuarantine()
    deaths = 0
    while quarantine.counts(0.0)[1] == 0:
        deaths += 2
        kill(quarantine, (deaths, deaths + 1), deaths, others=[7, 7, 7, *range(100, 130)], now=0.0)
    assert quarantine.enter(7, 0.0) == "entered"
    assert quarantine.enter(7, 0.0) == "busy"
    assert deaths <= 6
    assert all(quarantine.enter(other, 0.0) == "free" for other in range(100, 130))


def test_a_restriction_falls_with_its_quarantines():
    """Row 2: the log said "no longer quarantined", and the client got 429 for ten minutes."""
    quarantine = testing.RequestQuarantine()
    kill(quarantine, (1, 2), POISON)
    kill(quarantine, (3, 4), OTHER)
    assert quarantine.counts(0.0)[1] == 1
    assert quarantine.report_success(OTHER, 9, 1.0) == "restriction"
    assert quarantine.enter(7, 1.0) == "free"
    assert quarantine.report_success(POISON, 9, 1.0) == "quarantine"
    assert not quarantine.active


def test_a_restriction_falls_when_hosts_die_without_the_client():
    """Row 2: then the deaths have another cause."""
    quarantine = testing.RequestQuarantine()
    kill(quarantine, (1, 2), POISON)
    kill(quarantine, (3, 4), OTHER)
    for host in (5, 6):
        lose(quarantine, host, 50 + host, client=8)
        quarantine.report_down(host, 0.0)
    assert quarantine.enter(7, 0.0) == "free"


def test_an_equal_request_that_was_completed_is_no_offence():
    """Row 2: one body of many clients and copies is quarantined at most until one of them is served."""
    quarantine = testing.RequestQuarantine()
    for digest, hosts in ((POISON, (1, 2)), (OTHER, (3, 4))):
        lose(quarantine, hosts[0], digest)
        quarantine.report_down(hosts[0], 0.0)
        assert quarantine.report_success(digest, 9, 0.0) == ""
        lose(quarantine, hosts[1], digest)
        assert quarantine.report_down(hosts[1], 0.0) == [(f"request-{digest}", 0.0)]
    assert quarantine.counts(0.0)[1] == 0


def test_a_body_that_several_clients_send_is_held_against_none_of_them():
    quarantine = testing.RequestQuarantine()
    for digest in (POISON, OTHER):
        for host in (1, 2):
            lose(quarantine, host, digest, client=10 + host)
            quarantine.report_down(host, 0.0)
    assert quarantine.counts(0.0)[:2] == (2, 0)
