"""What a real API server tells of pods, and what becomes of their workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.followed import urls
from tests.kubernetes.cluster import Namespace
from tests.kubernetes.conftest import Follow
from tests.kubernetes.processes import Server

pytestmark = pytest.mark.cluster

URL_A, URL_B, URL_C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def _allowed(space: Namespace) -> None:
    space.allow()


def test_a_pod_is_a_worker_once_it_runs_and_rests_while_it_is_not_ready(
    space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", None, node=None)
    space.create_pod("other", "10.0.0.9", labels={"app": "other"})
    seen, server = follow()
    (a,) = seen.until_urls(URL_A).workers or ()
    assert (a.ready, a.leaving, a.weight) == (True, False, 1.0)
    assert a.incarnation == f"{space.uid('a')}/0"
    assert a.labels == {"pod": f"{space.name}/a"}
    space.set_status("b", "10.0.0.2", ready=False)
    assert [one.ready for one in seen.until_urls(URL_A, URL_B).workers or ()] == [True, False]
    space.set_status("b", "10.0.0.2")
    seen.until_worker(URL_B, lambda one: one.ready)
    space.set_status("b", "10.0.0.2", ready=False)
    seen.until_worker(URL_B, lambda one: not one.ready)
    assert (seen.deleted, seen.errors) == ([], [])
    assert (server.count("list"), server.count("watch")) == (1, 1)


@pytest.mark.parametrize(("grace_secs", "drain_secs"), [(None, 55), (10, 5), (3, 0)])
def test_a_pod_that_is_deleted_drains_until_its_kubelet_has_ended_it(
    grace_secs: int | None, drain_secs: float, space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", "10.0.0.2")
    seen, _ = follow()
    seen.until_urls(URL_A, URL_B)
    space.delete_pod("a", grace_secs)
    assert seen.until_worker(URL_A, lambda one: one.leaving).drain_secs == drain_secs
    space.set_status("a", "10.0.0.1", ready=False)  # while it ends
    assert seen.until_worker(URL_A, lambda one: not one.ready).leaving
    assert seen.deleted == []
    space.end_pod("a")
    seen.until_urls(URL_B)
    assert seen.deleted == [URL_A]


def test_a_pod_that_is_deleted_by_force_is_gone_at_once(space: Namespace, follow: Follow) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow()
    seen.until_urls(URL_A)
    space.delete_pod("a", 0)
    assert seen.until_urls().deleted == [URL_A]
    assert not any(one.leaving for listing in seen.listings for one in listing.workers or ())


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_gone(phase: str, space: Namespace, follow: Follow) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow()
    seen.until_urls(URL_A)
    space.set_status("a", "10.0.0.1", ready=False, phase=phase)
    assert seen.until_urls().deleted == [URL_A]


def test_a_pod_whose_label_moves_off_the_selector_is_gone_and_comes_back(
    space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", "10.0.0.2")
    seen, server = follow()
    before = seen.until_urls(URL_A, URL_B).workers
    space.label("a", app="debugged")
    seen.until_urls(URL_B)
    space.set_status("a", "10.0.0.1", ready=False)  # which does not concern us
    space.label("b", app=None)
    seen.until_urls()
    assert seen.deleted == [URL_A, URL_B]
    space.set_status("a", "10.0.0.1")
    space.label("a", app="vllm")
    space.label("b", app="vllm")
    assert seen.until_urls(URL_A, URL_B).workers == before
    assert server.count("list") == 1


def test_a_label_moves_a_pod_from_one_stage_to_the_other(space: Namespace, follow: Follow) -> None:
    space.create_pod("a", "10.0.0.1", labels={"app": "vllm", "role": "prefill"})
    space.create_pod("b", "10.0.0.2", labels={"app": "vllm", "role": "decode"})
    space.create_pod("c", "10.0.0.3", labels={"app": "vllm", "role": "other"})
    space.annotate("a", {"vllm.ai/bootstrap-port": "8999"})
    seen, server = follow(
        selector=(),
        prefill_selector=["app=vllm", "role in (prefill)"],
        decode_selector=["app=vllm", "role=decode"],
    )
    a, b = seen.until_urls(URL_A, URL_B).workers or ()
    assert (a.worker_type, a.bootstrap_port, b.worker_type) == ("prefill", 8999, "decode")
    assert seen.source.options.label_selector == "app in (vllm),role in (decode,prefill)"
    space.label("a", role="decode")
    assert seen.until_worker(URL_A, lambda one: one.worker_type == "decode").bootstrap_port is None
    assert (seen.deleted, seen.errors) == ([], [])
    space.label("a", role="other")
    assert seen.until_urls(URL_B).deleted == [URL_A]
    assert (server.count("list"), server.count("watch")) == (1, 1)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (["app in (vllm, sglang)"], "abc"),
        (["app notin (vllm)"], "cd"),
        (["app!=vllm"], "cd"),
        (["app"], "abc"),
        (["!app"], "d"),
        (["app=vllm", "!canary"], "a"),
        (["app", "canary in (yes)"], "b"),
        ({"app": "vllm", "canary": "yes"}, "b"),
        ("app=vllm,canary=yes", "b"),
    ],
)
def test_selectors_of_sets(selector: Any, names: str, space: Namespace, follow: Follow) -> None:
    labels: dict[str, dict[str, str]] = {
        "a": {"app": "vllm"},
        "b": {"app": "vllm", "canary": "yes"},
        "c": {"app": "sglang"},
        "d": {},
    }
    for number, (name, given) in enumerate(labels.items(), 1):
        space.create_pod(name, f"10.0.0.{number}", labels=given)
    seen, _ = follow(selector=selector)
    seen.until(lambda: bool(seen.listings))
    assert [one.labels["pod"][-1] for one in seen.listings[0].workers or ()] == list(names)


def test_a_selector_that_cannot_be_one_is_said_in_the_words_of_the_api_server(follow: Follow) -> None:
    seen, _ = follow(selector="app ==== vllm")
    message = seen.until_error("bad_request").message
    assert "cannot list: 400: " in message
    assert "unable to parse requirement: found '=='" in message


def test_a_container_that_was_restarted_and_a_pod_of_the_same_name_are_new_engines(
    space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow()
    first = seen.until_worker(URL_A, lambda one: one.ready).incarnation
    space.set_status("a", "10.0.0.1", restarts=1)
    second = seen.until_worker(URL_A, lambda one: one.incarnation != first).incarnation
    assert (first[-2:], second[-2:]) == ("/0", "/1")
    space.end_pod("a")
    space.create_pod("a", "10.0.0.1")
    third = seen.until_worker(URL_A, lambda one: one.incarnation not in (first, second)).incarnation
    assert third == f"{space.uid('a')}/0"


def test_an_address_that_goes_from_a_pod_to_the_next_one(space: Namespace, follow: Follow) -> None:
    space.create_pod("old", "10.0.0.1")
    seen, _ = follow()
    seen.until_urls(URL_A)
    space.delete_pod("old")
    seen.until_worker(URL_A, lambda one: one.leaving)
    space.create_pod("new", "10.0.0.1")
    new = seen.until_worker(URL_A, lambda one: not one.leaving)
    assert new.incarnation == f"{space.uid('new')}/0"
    space.end_pod("old")
    space.create_pod("b", "10.0.0.2")
    seen.until_urls(URL_A, URL_B)
    assert seen.deleted == []


def test_annotations_and_named_ports(space: Namespace, follow: Follow) -> None:
    space.create_pod("a", "10.0.0.1", ports={"metrics": 9000, "http": 8080})
    space.create_pod("b", "10.0.0.2", annotations={"vllm.ai/worker-ports": "8001,8002"})
    seen, _ = follow(ports="http")
    assert urls(seen.until_urls("http://10.0.0.1:8080", "http://10.0.0.2:8001", "http://10.0.0.2:8002"))
    space.annotate("a", {"vllm.ai/weight": "2.5", "vllm.ai/data-parallel-size": "4"})
    a = seen.until_worker("http://10.0.0.1:8080", lambda one: one.weight == 2.5)
    assert a.data_parallel_size == 4
    space.annotate("b", {"vllm.ai/worker-ports": "8002", "vllm.ai/scheme": "https"})
    seen.until_urls("http://10.0.0.1:8080", "https://10.0.0.2:8002")
    assert set(seen.deleted) == {"http://10.0.0.2:8001", "http://10.0.0.2:8002"}


@pytest.mark.parametrize(("family", "url"), [("ipv4", URL_A), ("ipv6", "http://[fd00::1]:8000")])
def test_a_pod_of_two_address_families(family: str, url: str, space: Namespace, follow: Follow) -> None:
    space.create_pod("a", None)
    addresses = [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]
    ready = [{"type": "Ready", "status": "True"}]
    space._patch_status(
        "a", {"phase": "Running", "podIP": "10.0.0.1", "podIPs": addresses, "conditions": ready}
    )
    seen, _ = follow(ip_family=family)
    assert [one.ready for one in seen.until_urls(url).workers or ()] == [True]


def test_two_namespaces(space: Namespace, server: Server, follow: Follow) -> None:
    other = Namespace(server, f"{space.name}-other")
    space.create_pod("a", "10.0.0.1")
    other.create_pod("b", "10.0.0.2")
    seen, _ = follow(namespaces=[space.name, other.name])
    # It may not look into the other one.
    error = seen.until_error("forbidden")
    assert f'in the namespace "{other.name}"' in error.message
    assert not seen.until_urls(URL_A).complete
    other.allow(other=space)
    assert seen.until_urls(URL_A, URL_B).complete
    other.end_pod("b")
    assert seen.until_urls(URL_A).deleted == [URL_B]
