"""cpp/bindings/errors.cc: each status is the exception that errors.py describes."""

import re
from pathlib import Path

import pytest

import vllm_router
from vllm_router import NoWorkersError, Router, RouterError, WorkerExistsError, WorkerNotFoundError


def test_the_tree_is_as_drawn():
    assert issubclass(NoWorkersError, RouterError)
    assert issubclass(WorkerNotFoundError, RouterError)
    assert issubclass(WorkerNotFoundError, LookupError)
    assert issubclass(WorkerExistsError, RouterError)
    assert issubclass(WorkerExistsError, ValueError)
    assert issubclass(vllm_router.UnusedOptionWarning, UserWarning)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda r: r.select(exclude=["http://a:1"]), NoWorkersError, "1 worker, of which"),
        (lambda r: r.add_worker("http://a:1"), WorkerExistsError, "http://a:1"),
        (lambda r: r.add_worker("ftp://a:1"), ValueError, "ftp://a:1"),
        (lambda r: r.add_worker("http://b:1", weight=0), ValueError, "weight"),
        (lambda r: r.remove_worker("http://b:1"), WorkerNotFoundError, "http://b:1"),
        (lambda r: r.drain_worker("http://b:1"), WorkerNotFoundError, "http://a:1"),
        (lambda r: r.set_healthy("http://b:1", True), WorkerNotFoundError, "http://b:1"),
    ],
)
def test_each_failure_is_its_exception_with_a_sentence(call, error, says):
    router = Router("least_load", ["http://a:1"])
    with pytest.raises(error, match=says) as raised:
        call(router)
    assert type(raised.value) is error
    assert str(raised.value)[0] != "'", "LookupError must not quote its sentence as KeyError does"
    assert router.worker_urls == ["http://a:1"]
    assert router.workers[0].load == 0


def test_a_full_fleet_is_a_router_error():
    router = Router("round_robin", intra_node_data_parallel_size=4096)
    router.add_worker("http://a:1")
    with pytest.raises(RouterError, match="4096") as raised:
        router.add_worker("http://b:1")
    assert type(raised.value) is RouterError
    assert len(router.worker_urls) == 4096


def counts(error):
    return {name: count for name in NoWorkersError.__annotations__ if (count := getattr(error, name))}


def test_why_no_worker_may_be_chosen_can_be_read_as_numbers():
    """Row 46 of the third list: a program had the sentence alone."""
    router = Router("least_load", [f"http://w{number}:1" for number in range(1, 6)])
    router.set_healthy("http://w1:1", False)
    router.set_healthy("http://w2:1", False)
    router.drain_worker("http://w3:1")
    with pytest.raises(NoWorkersError) as raised:
        router.select(exclude=["http://w4:1", "http://w5:1"])
    assert counts(raised.value) == {"workers": 5, "unhealthy": 2, "draining": 1, "excluded": 2}
    with pytest.raises(NoWorkersError) as raised:
        Router("least_load").select()
    assert counts(raised.value) == {}
    busy = Router("least_load", ["http://w1:1", "http://w2:1"], max_worker_requests=1)
    tickets = [busy.select(), busy.select()]
    with pytest.raises(NoWorkersError) as raised:
        busy.select()
    assert counts(raised.value) == {"at_capacity": 2}
    assert len(tickets) == 2
    with pytest.raises(AttributeError, match="no attribute 'unhelthy'"):
        _ = raised.value.unhelthy


def test_each_count_of_a_message_has_its_attribute():
    source = (Path(__file__).parents[3] / "cpp" / "routing" / "router.cc").read_text()
    function = source.split("std::string NobodyEligible")[1].split("\n}\n")[0]
    told = re.findall(
        r'" ((?:unhealthy|draining|excluded|not ready|that [a-z ]+|with an [a-z ]+|in doubt))', function
    )
    assert len(told) == 8
    for words in told:
        error = NoWorkersError(f"the fleet has 9 workers, of which 7 {words}")
        assert sorted(counts(error).values()) == [7, 9], words
