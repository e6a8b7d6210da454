"""cpp/routing/request_quarantine.h: requests that were in flight when workers died."""

from tests.fakes.losses import OTHER, POISON, lose
from vllm_router import _core_testing as testing


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


def test_the_oldest_are_forgotten_first():
    quarantine = testing.RequestQuarantine(max_requests=2)
    for now, digest in enumerate((1, 2, 3)):
        lose(quarantine, 1, digest, now=float(now))
        lose(quarantine, 2, digest, now=float(now))
    assert [quarantine.is_suspected(digest, 3.0) for digest in (1, 2, 3)] == [False, True, True]


def test_path_and_body_cannot_run_into_each_other():
    assert testing.digest_of_request("/a", "bc") != testing.digest_of_request("/ab", "c")
    assert testing.digest_of_request("/a", "b") == testing.digest_of_request("/a", "b")
