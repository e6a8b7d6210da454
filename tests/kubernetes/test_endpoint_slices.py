"""What a real API server tells of the EndpointSlices of a Service. The account may not read pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.kubernetes import endpoint
from tests.kubernetes.cluster import Namespace
from tests.kubernetes.conftest import Follow

pytestmark = pytest.mark.cluster

URL_A, URL_B, URL_C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def _allowed(space: Namespace) -> None:
    space.allow("endpointslices")


def serving(address: str, **more: Any) -> dict[str, Any]:
    return endpoint(address, **{"ready": True, "serving": True, "terminating": False, **more})


def resting(address: str) -> dict[str, Any]:
    return serving(address, ready=False, serving=False)


def draining(address: str) -> dict[str, Any]:
    """As a controller writes it of a pod that is being deleted and still ready."""
    return serving(address, ready=False, terminating=True)


def test_an_endpoint_comes_rests_drains_and_goes(space: Namespace, follow: Follow) -> None:
    space.create_slice("s", serving("10.0.0.1"))
    space.create_slice("t", serving("10.0.0.9"), service="other")
    seen, server = follow(service="vllm")
    (a,) = seen.until_urls(URL_A).workers or ()
    assert (a.ready, a.leaving, a.labels) == (True, False, {"slice": f"{space.name}/s"})
    space.replace_slice("s", serving("10.0.0.1"), resting("10.0.0.2"))
    assert [one.ready for one in seen.until_urls(URL_A, URL_B).workers or ()] == [True, False]
    space.replace_slice("s", resting("10.0.0.1"), serving("10.0.0.2"))
    seen.until(lambda: [one.ready for one in seen.listings[-1].workers or ()] == [False, True])
    space.replace_slice("s", resting("10.0.0.1"), draining("10.0.0.2"))
    seen.until_worker(URL_B, lambda one: one.leaving and not one.ready)
    assert seen.deleted == []
    space.replace_slice("s", serving("10.0.0.1"))
    assert seen.until_worker(URL_A, lambda one: one.ready)
    seen.until_urls(URL_A)
    space.delete_slice("s")
    seen.until_urls()
    assert (seen.deleted, seen.errors) == ([URL_B, URL_A], [])
    assert server.count("list") == 1


def test_conditions_that_are_not_given_are_those_of_an_endpoint_at_work(
    space: Namespace, follow: Follow
) -> None:
    space.create_slice("s", endpoint("10.0.0.1"))
    seen, _ = follow(service="vllm")
    (a,) = seen.until_urls(URL_A).workers or ()
    assert (a.ready, a.leaving) == (True, False)


def test_an_endpoint_is_told_apart_by_the_pod_behind_it(space: Namespace, follow: Follow) -> None:
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", "10.0.0.1")

    def behind(name: str) -> dict[str, Any]:
        made = serving("10.0.0.1")
        made["targetRef"] = {"kind": "Pod", "name": name, "namespace": space.name, "uid": space.uid(name)}
        return made

    space.create_slice("s", behind("a"))
    seen, _ = follow(service="vllm")
    (a,) = seen.until_urls(URL_A).workers or ()
    assert (a.incarnation, a.labels) == (space.uid("a"), {"pod": f"{space.name}/a"})
    space.replace_slice("s", behind("b"))
    assert seen.until_worker(URL_A, lambda one: one.incarnation == space.uid("b"))
    assert seen.deleted == []


def test_an_endpoint_that_moves_to_another_slice_stays(space: Namespace, follow: Follow) -> None:
    space.create_slice("s", serving("10.0.0.1"), serving("10.0.0.2"))
    seen, _ = follow(service="vllm")
    seen.until_urls(URL_A, URL_B)
    space.create_slice("t", serving("10.0.0.2"), serving("10.0.0.3"))
    space.replace_slice("s", serving("10.0.0.1"))
    seen.until_urls(URL_A, URL_B, URL_C)
    space.delete_slice("t")
    seen.until_urls(URL_A)
    assert sorted(seen.deleted) == [URL_B, URL_C]


@pytest.mark.parametrize(
    ("ports", "wanted", "url"),
    [
        ({"http": 8000, "metrics": 9000}, "http", URL_A),
        ({"http": 8000, "metrics": 9000}, 9000, "http://10.0.0.1:9000"),
        ({}, 8000, URL_A),  # a slice without ports leaves the choice to us
    ],
)
def test_ports_of_a_slice(
    ports: dict[str, int], wanted: int | str, url: str, space: Namespace, follow: Follow
) -> None:
    space.create_slice("s", serving("10.0.0.1"), ports=ports)
    seen, _ = follow(service="vllm", ports=wanted)
    seen.until_urls(url)


@pytest.mark.parametrize(("family", "url"), [("ipv4", URL_A), ("ipv6", "http://[fd00::1]:8000")])
def test_slices_of_two_address_families(family: str, url: str, space: Namespace, follow: Follow) -> None:
    space.create_slice("s", serving("10.0.0.1"))
    space.create_slice("t", serving("fd00::1"), address_type="IPv6")
    seen, _ = follow(service="vllm", ip_family=family)
    seen.until_urls(url)


def test_it_may_not_read_pods(follow: Follow) -> None:
    seen, _ = follow()
    assert 'cannot list resource "pods"' in seen.until_error("forbidden").message
