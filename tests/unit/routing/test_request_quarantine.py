"""cpp/routing/request_quarantine.h: requests that were in flight when workers died."""

from tests.fakes.losses import OTHER, POISON, lose
from vllm_router import _core_testing as testing


def test_a_request_that_died_on_two_workers_is_quarantined_for_a_minute():
    quarantine = testing.RequestQuarantine()
    for host in (1, 2):
        lose(quarantine, host)
        quarantined = quarantine.report_down(host, 0.1)
    assert quarantined == [("request-1", 0.0)]
    assert quarantine.is_suspected(POISON, 60.0)
    assert not quarantine.is_suspected(POISON, 60.2)
    assert not quarantine.active


def test_without_health_checks_only_deaths_count():
    quarantine = testing.RequestQuarantine(suspect_pending=False)
    for host in (1, 2):
        lose(quarantine, host)
    assert not quarantine.is_suspected(POISON, 0.0)
    for host in (1, 2):
        quarantine.report_down(host, 0.1)
    assert quarantine.is_suspected(POISON, 0.1)


def test_losses_of_a_worker_that_has_left_the_fleet_are_forgotten():
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
