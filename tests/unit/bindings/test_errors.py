"""cpp/bindings/errors.cc: each status is the exception that errors.py describes."""

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
