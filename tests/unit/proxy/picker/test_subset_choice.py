"""cpp/proxy/picker/subset_choice.h: a choice among some workers, by their breakers and back-offs."""

import pytest

from tests.fakes.data_plane import head, response_head

BREAKERS = {"disable_circuit_breaker": False, "cb_failure_threshold": 2, "cb_timeout_duration_secs": 3600}


def answered(plane, subset, status):
    """Picks one of `subset`, which responds with this status. Returns the worker."""
    stream = plane.stream()
    stream.send(head(subset=subset))
    chosen = stream.choice()
    stream.send(response_head(status, end=True))
    stream.close()
    return chosen


def test_one_whose_breaker_is_open_is_passed_over_and_taken_if_it_is_alone(harness, data_plane):
    workers = [harness.worker() for _ in range(3)]
    router = harness.router(*workers, epp_port=0, **BREAKERS)
    plane = data_plane(router)
    first, second, third = (worker.authority for worker in workers)
    for _ in range(6):  # the fleet is well, but for one
        assert answered(plane, [second], 200) == second
        assert answered(plane, [third], 200) == third
        assert answered(plane, [first], 500) == first
    assert {answered(plane, [first, second], 200) for _ in range(6)} == {second}
    assert answered(plane, [first], 500) == first


@pytest.mark.parametrize("policy", ["round_robin", "least_load", "consistent_hash", "cache_aware"])
def test_each_policy_chooses_within_the_subset(harness, data_plane, policy):
    workers = [harness.worker() for _ in range(5)]
    plane = data_plane(harness.router(*workers, policy=policy, epp_port=0))
    subset = [worker.authority for worker in workers[1:3]]
    assert {plane.pick(head(subset=subset)) for _ in range(10)} <= set(subset)


def test_where_all_are_full_the_next_one_waits(harness, data_plane):
    workers = [harness.worker() for _ in range(2)]
    router = harness.router(*workers, epp_port=0, routing={"max_worker_requests": 1}, queue_size=5)
    plane = data_plane(router)
    subset = [workers[0].authority]
    first, second = plane.stream(), plane.stream()
    first.send(head(subset=subset))
    assert first.choice() == subset[0]
    second.send(head(subset=subset))
    first.send(response_head(end=True))
    assert second.choice() == subset[0]
    first.close()
    second.close()
