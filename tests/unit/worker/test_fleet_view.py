"""cpp/worker/fleet_view.h: one snapshot, and the smaller one that a retry sees."""

import pytest

from vllm_router import _core_testing as testing

URLS = [f"http://w{i}:8000" for i in range(4)]


@pytest.fixture
def registry():
    registry = testing.Registry()
    registry.add_all([(url, 1.0) for url in URLS])
    return registry


def test_a_view_without_members_has_nobody_eligible():
    view = testing.Registry().view
    assert view.eligible == []
    assert view.eligible_weight == 0
    assert view.equal_weights
    assert view.plan is None
    assert view.find("http://a") is None


def test_eligible_are_the_healthy_that_do_not_drain(registry):
    #   position       0      1      2      3
    #   members       w0     w1     w2     w3
    #   eligible      [0,            2      ]     w1 is unhealthy, w3 drains
    registry.set_healthy(URLS[1], False)
    registry.set_draining(URLS[3], True)
    assert registry.view.eligible == [0, 2]
    assert [member[5] for member in registry.members()] == [True, False, True, False]


def test_without_removes_eligibility_and_keeps_positions_and_plan(registry):
    view = registry.view
    smaller = view.without([0, 2])
    assert smaller.eligible == [1, 3]
    assert smaller.without([1]).eligible == [3]
    assert smaller.without([1, 3]).eligible == []
    assert smaller.plan == view.plan
    assert smaller.membership == view.membership
    assert smaller.find(URLS[2]) == 2
    assert view.eligible == [0, 1, 2, 3], "the view that was asked is unchanged"


def test_without_what_is_not_eligible_changes_nothing(registry):
    registry.set_healthy(URLS[1], False)
    assert registry.view.without([1, 1]).eligible == [0, 2, 3]
    assert registry.view.without([]).eligible == [0, 2, 3]


def test_weights_are_summed_and_compared_among_the_eligible():
    registry = testing.Registry()
    registry.add_all([("http://a", 1.0), ("http://b", 2.5), ("http://c", 1.0)])
    assert registry.view.eligible_weight == 4500
    assert not registry.view.equal_weights
    smaller = registry.view.without([1])
    assert smaller.eligible_weight == 2000
    assert smaller.equal_weights


def test_find_wants_the_url_as_registered(registry):
    assert [registry.view.find(url) for url in URLS] == [0, 1, 2, 3]
    assert registry.view.find("http://w9:8000") is None


def test_a_worker_with_an_open_breaker_is_not_eligible():
    registry = testing.Registry()
    for host in "abc":
        registry.add(f"http://{host}:8000")
    assert registry.view.steady
    registry.set_open("http://b:8000", True)
    assert (registry.view.eligible, registry.view.steady) == ([0, 2], False)
    registry.set_open("http://b:8000", False)
    assert (registry.view.eligible, registry.view.steady) == ([0, 1, 2], True)


def test_a_worker_that_warms_up_weighs_less():
    registry = testing.Registry()
    for host in "abc":
        registry.add(f"http://{host}:8000", 2.0)
    assert (registry.view.eligible_weight, registry.view.equal_weights) == (6000, True)
    registry.set_slow_start_factor("http://b:8000", 100)
    assert (registry.view.eligible_weight, registry.view.equal_weights) == (4200, False)
    registry.set_slow_start_factor("http://b:8000", 1000)
    assert (registry.view.eligible_weight, registry.view.equal_weights) == (6000, True)


def test_a_worker_in_doubt_is_not_eligible_and_counts_as_ejected():
    registry = testing.Registry()
    registry.add_all([("http://a:1", 1.0), ("http://b:1", 1.0), ("http://c:1", 1.0)])
    registry.set_in_doubt("http://b:1", True)
    view = registry.view
    assert (view.eligible, view.ejected, view.any_in_doubt) == ([0, 2], 1, True)
    assert not view.may_eject  # of three, one may be out
    assert not view.steady  # so a request looks for a probe that is due
    registry.set_in_doubt("http://b:1", False)
    assert (registry.view.eligible, registry.view.any_in_doubt, registry.view.steady) == (
        [0, 1, 2],
        False,
        True,
    )


def test_overloaded_workers_stay_eligible_and_can_be_left_out():
    registry = testing.Registry()
    registry.add_all([("http://a:1", 1.0), ("http://b:1", 1.0)])
    assert not registry.view.any_overloaded
    registry.set_overloaded("http://a:1", True)
    view = registry.view
    assert (view.eligible, view.any_overloaded, view.steady) == ([0, 1], True, True)
    assert view.without_overloaded().eligible == [1]
    registry.set_healthy("http://a:1", False)
    assert not registry.view.any_overloaded  # it may not be chosen anyway
