"""The path of a worker's URL on the wire: a boundary that no spelling of dot segments crosses."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import request

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    "target",
    ["/../tenant-b/x", "/a/../../tenant-b/x?q", "/%2e%2E/tenant-b", "/..%2ftenant-b", "/..\\x", "/..;/x"],
)
def test_a_path_that_leaves_a_workers_prefix_is_rejected_before_any_attempt(harness, target):
    """mending row 14: the path of a worker's URL is a boundary, and the connection goes on."""
    worker = harness.worker(path="/tenant-a")
    client = harness.client(harness.router(worker))
    for body in (None, b"{}"):
        response = client.ask("POST" if body else "GET", target, body=body)
        assert (response.status, error_of(response)["code"]) == (400, "path_outside_prefix")
        assert "tenant-a" not in response.body.decode()
    client.must_be_open()
    assert worker.connections == []


@pytest.mark.parametrize(
    ("target", "joined"),
    [
        ("/v1/x/../files/./a?b=../c", "/tenant-a/v1/files/a?b=../c"),
        ("/b/a/%2e%2e", "/tenant-a/b/"),
        ("http://elsewhere/a/../b", "/tenant-a/b"),
        ("/a/..b/c.json", "/tenant-a/a/..b/c.json"),
        ("/a%2f..%2fb", "/tenant-a/a%2f..%2fb"),
    ],
)
def test_dot_segments_inside_the_prefix_are_resolved_before_joining(harness, target, joined):
    """mending row 14: what stays inside reaches the worker without plain dot segments."""
    worker = harness.worker(path="/tenant-a")
    client = harness.client(harness.router(worker))
    assert client.ask("GET", target).status == 200
    assert [message.target for message in worker.requests] == [joined]


def test_one_worker_with_a_prefix_is_enough_for_every_attempt_to_be_safe(harness):
    """mending row 14: which worker would be chosen does not decide."""
    plain, prefixed = harness.worker(), harness.worker(path="/tenant-a")
    client = harness.client(harness.router(plain, prefixed))
    for _ in range(4):
        assert client.ask("GET", "/../x").status == 400
        assert client.ask("GET", "/a/../x").status == 200
    assert {message.target for message in plain.requests} == {"/x"}
    assert {message.target for message in prefixed.requests} == {"/tenant-a/x"}


def test_without_prefixes_the_target_passes_unchanged(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    targets = ["/../x", "/a/./../b?c", "/%2e%2e/..%2f", "/..;/x"]
    for target in targets:
        assert client.ask("GET", target).status == 200
    assert [message.target for message in worker.requests] == targets


def test_where_dot_segments_are_resolved_they_decide_nothing_beforehand(harness):
    """An admin endpoint behind dot segments is one, for keys and everything else."""
    worker = harness.worker(path="/tenant-a")
    client = harness.client(harness.router(worker))
    response = client.ask("GET", "/x/../list_workers")
    assert (response.status, b"tenant-a" in response.body) == (200, True)
    assert worker.requests == []


def test_a_worker_with_a_prefix_that_joins_too_late_to_be_checked_for_is_not_chosen(harness):
    """mending row 14: no request slips through while the fleet changes."""
    plain, prefixed = harness.worker(), harness.worker(path="/tenant-a")
    router = harness.router(plain, policy="consistent_hash")
    outside, ordinary = harness.client(router), harness.client(router)
    whole = request("POST", "/../tenant-b", body=b'{"user": "u"}'.ljust(100))
    outside.send(whole[:-1])
    outside.wait_until_read()
    router.core.add_worker(prefixed.url)
    router.core.remove_worker(plain.url)
    outside.send(whole[-1:])
    assert outside.read_response().status == 503
    assert ordinary.ask("POST", COMPLETIONS, body=b"{}").status == 200
    assert [message.target for message in prefixed.requests] == ["/tenant-a" + COMPLETIONS]
