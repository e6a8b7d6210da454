"""cpp/routing/request_quarantine.h: requests that were in flight when workers died."""

from vllm_router import _core_testing as testing

POISON, OTHER = 1, 2


def lose(quarantine, host, digest=POISON, client=7, now=0.0, sent=0.0):
    quarantine.report_loss(digest, 100, host, client, f"request-{digest}", now, sent)


def kill(quarantine, hosts, digest, client=7, now=0.0, others=()):
    """The request ends one host after the other; with each, older requests of others are lost."""
    quarantined = []
    for host in hosts:
        for number, other in enumerate(others):
            lose(quarantine, host, 1000 * host + number, other, now, sent=now - 2)
        lose(quarantine, host, digest, client, now, sent=now - 0.1)
        quarantined += quarantine.report_down(host, now)
    return quarantined


def test_nothing_is_asked_while_nothing_is_known():
    quarantine = testing.RequestQuarantine()
    assert not quarantine.active
    lose(quarantine, host=1)
    assert not quarantine.active  # one loss makes no suspect


def test_a_request_that_died_on_two_workers_is_quarantined_for_a_minute():
    quarantine = testing.RequestQuarantine()
    for host in (1, 2):
        lose(quarantine, host)
        quarantined = quarantine.report_down(host, 0.1)
    assert quarantined == [("request-1", 0.0)]
    assert quarantine.is_suspected(POISON, 60.0)
    assert not quarantine.is_suspected(POISON, 60.2)
    assert not quarantine.active


def test_two_losses_are_enough_until_a_worker_is_known_to_live():
    quarantine = testing.RequestQuarantine()
    lose(quarantine, host=1)
    lose(quarantine, host=2)
    assert quarantine.is_suspected(POISON, 0.0)
    quarantine.report_up(host=2, since=0.1, now=0.2)
    assert not quarantine.is_suspected(POISON, 0.2)


def test_without_health_checks_only_deaths_count():
    quarantine = testing.RequestQuarantine(suspect_pending=False)
    for host in (1, 2):
        lose(quarantine, host)
    assert not quarantine.is_suspected(POISON, 0.0)
    for host in (1, 2):
        quarantine.report_down(host, 0.1)
    assert quarantine.is_suspected(POISON, 0.1)


def test_a_check_that_began_before_the_loss_says_nothing_about_it():
    quarantine = testing.RequestQuarantine()
    lose(quarantine, host=1, now=5.0)
    lose(quarantine, host=2, now=5.0)
    quarantine.report_up(host=2, since=4.9, now=5.1)
    assert quarantine.is_suspected(POISON, 5.1)


def test_others_on_one_dying_worker_are_innocent():
    quarantine = testing.RequestQuarantine()
    lose(quarantine, host=1)
    lose(quarantine, host=1, digest=OTHER)
    quarantine.report_down(1, 0.0)
    lose(quarantine, host=2)
    quarantine.report_down(2, 0.0)
    assert quarantine.is_suspected(POISON, 1.0)
    assert not quarantine.is_suspected(OTHER, 1.0)


def test_equal_requests_that_one_worker_had_are_one_death():
    """mending row 1: each loss behind a refused connect counted as one more death."""
    quarantine = testing.RequestQuarantine(10, 10, True)
    for moment in (0.0, 0.1, 0.2):
        quarantine.report_loss(1, 100, 7, 1, "first", moment)
        assert quarantine.report_down(7, moment) == []
        assert not quarantine.is_suspected(1, moment)
    quarantine.report_loss(1, 100, 7, 1, "restarted", 11.0)
    assert quarantine.report_down(7, 11.0) == [("restarted", 0.0)]


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


def test_losses_that_come_late_do_not_quarantine_again_what_was_lifted():
    """Row 2: equal requests that the second host had were its death once more."""
    quarantine = testing.RequestQuarantine()
    for host in (1, 2):
        lose(quarantine, host)
        quarantine.report_down(host, 0.0)
    assert quarantine.report_success(POISON, 3, 0.1) == "quarantine"
    for host in (1, 2):
        lose(quarantine, host, now=0.2)
        assert quarantine.report_down(host, 0.3) == []
    assert not quarantine.is_suspected(POISON, 0.3)


def test_losses_of_a_worker_that_has_left_the_fleet_are_forgotten():
    """Row 2: nobody reports on it again."""
    quarantine = testing.RequestQuarantine()
    lose(quarantine, host=1)
    lose(quarantine, host=2, digest=OTHER, now=10.0)
    assert quarantine.report_down(1, 10.0) == []
    lose(quarantine, host=3, now=10.0)
    assert quarantine.report_down(3, 10.0) == []
    assert not quarantine.is_suspected(POISON, 10.0)


def test_a_body_that_several_clients_send_is_held_against_none_of_them():
    quarantine = testing.RequestQuarantine()
    for digest in (POISON, OTHER):
        for host in (1, 2):
            lose(quarantine, host, digest, client=10 + host)
            quarantine.report_down(host, 0.0)
    assert quarantine.counts(0.0)[:2] == (2, 0)


def test_the_oldest_are_forgotten_first():
    quarantine = testing.RequestQuarantine(max_requests=2)
    for now, digest in enumerate((1, 2, 3)):
        lose(quarantine, 1, digest, now=float(now))
        lose(quarantine, 2, digest, now=float(now))
    assert [quarantine.is_suspected(digest, 3.0) for digest in (1, 2, 3)] == [False, True, True]


def test_path_and_body_cannot_run_into_each_other():
    assert testing.digest_of_request("/a", "bc") != testing.digest_of_request("/ab", "c")
    assert testing.digest_of_request("/a", "b") == testing.digest_of_request("/a", "b")
