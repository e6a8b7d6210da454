"""Endpoints of KV events: what a flag may say, and what an engine's own words become."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as core

OPTION = "kv_event_source"


@pytest.mark.parametrize(
    ("value", "worker", "endpoints"),
    [
        ("http://w1:8000=tcp://w1:5557", "http://w1:8000", ["tcp://w1:5557"]),
        ("http://w:1=tcp://w:5557,tcp://w:5558", "http://w:1", ["tcp://w:5557", "tcp://w:5558"]),
        ("http://w:1@2=tcp://[::1]:5557", "http://w:1@2", ["tcp://[::1]:5557"]),
        ("http://w:1=ipc:///tmp/events", "http://w:1", ["ipc:///tmp/events"]),
        ("http://w:1= tcp://w:1 , tcp://w:2 ", "http://w:1", ["tcp://w:1", "tcp://w:2"]),
    ],
)
def test_a_value_names_a_worker_and_an_endpoint_per_rank(value, worker, endpoints):
    assert core.parse_named_endpoints(OPTION, value) == (worker, endpoints)


@for_each_row(
    ("value", "complaint"),
    [
        ("tcp://w1:5557", "is not WORKER_URL=ENDPOINT"),
        ("=tcp://w1:5557", "is not WORKER_URL=ENDPOINT"),
        ("http://w:1=", "is not tcp://HOST:PORT or ipc://PATH"),
        ("http://w:1=tcp://w:1,", "is not tcp://HOST:PORT or ipc://PATH"),
        ("http://w:1=udp://w:1", "is not tcp://HOST:PORT or ipc://PATH"),
        ("http://w:1=tcp://w", "is not tcp://HOST:PORT or ipc://PATH"),
        ("http://w:1=tcp://:5557", "is not tcp://HOST:PORT or ipc://PATH"),
        ("http://w:1=tcp://w:0", "needs a port from 1 to 65535"),
        ("http://w:1=tcp://w:65536", "needs a port from 1 to 65535"),
        ("http://w:1=tcp://w:x", "needs a port from 1 to 65535"),
        ("http://w:1=tcp://*:5557", "stands for every address"),
        ("http://w:1=tcp://0.0.0.0:5557", "stands for every address"),
        ("http://w:1=tcp://a b:5557", "has a character that no host and port have"),
        ("http://w:1=tcp://eth0;w:5557", "has a character that no host and port have"),
        ("http://w:1=ipc://", "needs a path of 1 to 107 bytes"),
        ("http://w:1=ipc://" + "x" * 108, "needs a path of 1 to 107 bytes"),
    ],
)
def test_anything_else_is_rejected_with_the_remedy(value, complaint):
    with pytest.raises(ValueError, match=r"^kv_event_source: ") as raised:
        core.parse_named_endpoints(OPTION, value)
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("bound", "host", "reachable"),
    [
        ("tcp://*:5557", "w1", "tcp://w1:5557"),
        ("tcp://0.0.0.0:5557", "10.0.0.7", "tcp://10.0.0.7:5557"),
        ("tcp://[::]:5557", "::1", "tcp://[::1]:5557"),
        ("tcp://*:5557", "::1", "tcp://[::1]:5557"),
        ("tcp://other:5557", "w1", "tcp://other:5557"),
        ("ipc:///tmp/x", "w1", "ipc:///tmp/x"),
        ("", "w1", ""),
    ],
)
def test_a_wildcard_becomes_the_workers_host(bound, host, reachable):
    assert core.reachable_endpoint(bound, host) == reachable


@pytest.mark.parametrize(
    ("workers", "most", "kept"),
    [
        ([7] * 40 + [9], 16, [*range(8), 40]),  # one names forty ranks
        ([1, 1, 2, 2, 3], 5, [0, 2, 4]),
        ([1, 1, 2, 2], 4, [0, 1, 2, 3]),
        ([1, 2, 3], 2, [0, 1]),
        ([], 2, []),
    ],
)
def test_places_are_shared_by_workers(workers, most, kept):
    assert core.fair_share(workers, most) == kept
