"""InferencePoolSource against an API server over HTTP: which pods a pool has, and what changes do."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.followed import Followed
from tests.fakes.kubernetes import FakeKubernetes, inference_pool, pod
from tests.fakes.wire import PATIENCE
from vllm_router.discovery import SourceError
from vllm_router.discovery.inference_pool import InferencePoolSource, PoolPods
from vllm_router.discovery.kubernetes import KubernetesOptions, KubernetesSource
from vllm_router.discovery.kubernetes_watch import Timing

pytest.importorskip("kubernetes")

FAST = Timing(
    resync=PATIENCE,
    window=(PATIENCE, PATIENCE),
    slack=PATIENCE,
    short=0.02,
    backoff=(0.01, 0.05),
    forbidden=0.05,
    restarts=(6, 0.01),
)
A, B = pod("a", "10.0.0.1"), pod("b", "10.0.0.2")
OTHER = pod("other", "10.0.0.9", labels={"app": "sglang", "team.example/tier": "1"})
URL_A, URL_B, URL_OTHER = (f"http://10.0.0.{number}:8000" for number in (1, 2, 9))


@pytest.fixture
def cluster() -> Iterator[FakeKubernetes]:
    with FakeKubernetes() as made:
        yield made


@pytest.fixture
def follow(cluster: FakeKubernetes, tmp_path: Path) -> Iterator[Callable[[], Followed]]:
    made: list[Followed] = []
    of_pods: list[KubernetesSource] = []

    def start() -> Followed:
        options = KubernetesOptions(
            pool="vllm", namespaces="default", kubeconfig=cluster.kubeconfig(tmp_path)
        )

        def pods_of(options: KubernetesOptions) -> KubernetesSource:
            of_pods.append(KubernetesSource(options, timing=FAST, randomness=random.Random(1)))
            return of_pods[-1]

        made.append(Followed())
        made[-1].start(InferencePoolSource(options, pods=pods_of, timing=FAST, randomness=random.Random(1)))
        return made[-1]

    yield start
    for one in made:
        one.source.close()
    for thread in (thread for one in (*(each.source for each in made), *of_pods) for thread in one._threads):
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_its_labels_and_ports_say_which_workers_there_are(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    for thing in (A, B, OTHER, inference_pool("another", labels={"app": "sglang"})):
        cluster.put(thing)
    cluster.put(inference_pool(ports=(8000, 8001)))
    seen = follow()
    seen.until_urls(URL_A, "http://10.0.0.1:8001", URL_B, "http://10.0.0.2:8001")
    cluster.delete(B)
    seen.until_urls(URL_A, "http://10.0.0.1:8001")
    queries = {one.resource: one.query for one in cluster.requests}
    assert queries["pods"]["labelSelector"] == "app=vllm"
    assert queries["inferencepools"]["fieldSelector"] == "metadata.name=vllm"
    assert seen.errors == []


def test_other_labels_are_followed_and_the_former_workers_are_deleted(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    for thing in (A, B, OTHER, inference_pool()):
        cluster.put(thing)
    seen = follow()
    seen.until_urls(URL_A, URL_B)
    cluster.wait_watching(2)
    cluster.put(inference_pool(labels={"app": "sglang", "team.example/tier": "1"}))
    listing = seen.until_urls(URL_OTHER)
    assert (listing.deleted, listing.complete) == ([URL_A, URL_B], True)
    cluster.put(pod("more", "10.0.0.3", labels={"app": "sglang", "team.example/tier": "1"}))
    assert seen.until_urls("http://10.0.0.3:8000", URL_OTHER).deleted == []
    assert seen.errors == []


def test_other_ports_are_followed(cluster: FakeKubernetes, follow: Callable[[], Followed]) -> None:
    for thing in (A, inference_pool()):
        cluster.put(thing)
    seen = follow()
    seen.until_urls(URL_A)
    cluster.wait_watching(2)
    cluster.put(inference_pool(ports=(9000,)))
    assert seen.until_urls("http://10.0.0.1:9000").deleted == [URL_A]


def test_a_change_of_its_status_changes_nothing(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    for thing in (A, inference_pool()):
        cluster.put(thing)
    seen = follow()
    seen.until_urls(URL_A)
    cluster.wait_watching(2)
    cluster.put({**inference_pool(), "status": {"parents": []}})
    cluster.put(inference_pool(endpointPickerRef={"name": "another"}))
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)
    assert sum(one.verb == "list" and one.resource == "pods" for one in cluster.requests) == 1


def test_a_pool_that_is_not_there_yet_is_waited_for(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    cluster.put(A)
    seen = follow()
    assert seen.until_error("no_pool").message == "there is no InferencePool default/vllm"
    assert seen.listings == []
    cluster.put(inference_pool())
    seen.until_urls(URL_A)


def test_a_pool_that_is_deleted_is_reported_and_its_pods_are_followed_on(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    for thing in (A, inference_pool()):
        cluster.put(thing)
    seen = follow()
    seen.until_urls(URL_A)
    cluster.wait_watching(2)
    cluster.delete(inference_pool())
    assert seen.until_error("no_pool").message == (
        "there is no InferencePool default/vllm; its last pods are followed on"
    )
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)


def test_a_pool_with_a_mistake_is_reported_and_its_last_pods_are_followed_on(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    for thing in (A, inference_pool()):
        cluster.put(thing)
    seen = follow()
    seen.until_urls(URL_A)
    cluster.wait_watching(2)
    cluster.put(inference_pool(labels={}))
    assert seen.until_error("bad_pool").message.startswith(
        "InferencePool default/vllm: spec.selector.matchLabels has no labels"
    )
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)


def test_a_pool_that_may_not_be_read_says_which_verbs_of_what(
    cluster: FakeKubernetes, follow: Callable[[], Followed]
) -> None:
    cluster.forbidden.add(("list", "default"))
    message = follow().until_error("forbidden").message
    assert "a Role has to allow the verbs get, list and watch of inferencepools" in message


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({}, "spec.selector.matchLabels has no labels"),
        ({"selector": {"matchLabels": {"app": 7}}}, "spec.selector.matchLabels has no labels"),
        ({"selector": {"matchLabels": {"app": "vllm"}}}, "spec.targetPorts is empty"),
        (
            {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": 70000}]},
            "spec.targetPorts has the number 70000; name 1 to 8 ports between 1 and 65535",
        ),
    ],
    ids=("nothing", "label", "no-ports", "port"),
)
def test_what_a_pool_has_to_say(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PoolPods.of({"spec": spec})


def test_close_ends_a_look_that_waits(cluster: FakeKubernetes, follow: Callable[[], Followed]) -> None:
    cluster.put(inference_pool())
    seen = follow()
    cluster.wait_watching(2)
    seen.until_urls()
    seen.source.close()
    seen.thread.join(PATIENCE / 3)
    assert not seen.thread.is_alive()
    with pytest.raises(SourceError, match="closed"):
        seen.source.look()


def test_closed_before_the_first_look_it_starts_nothing(cluster: FakeKubernetes, tmp_path: Path) -> None:
    options = KubernetesOptions(pool="vllm", namespaces="default", kubeconfig=cluster.kubeconfig(tmp_path))
    source = InferencePoolSource(options)
    source.close()
    with pytest.raises(SourceError, match="closed"):
        source.look()
    assert cluster.requests == []


def test_its_pods_have_deletion_costs(cluster: FakeKubernetes, follow: Callable[[], Followed]) -> None:
    for thing in (A, inference_pool()):
        cluster.put(thing)
    seen = follow()
    seen.until_urls(URL_A)
    assert [(one.namespace, one.name) for one in seen.source.pods()] == [("default", "a")]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"pool": "vllm"}, "pool is vllm and namespaces has 0 names"),
        ({"pool": "vllm", "namespaces": ("a", "b")}, "pool is vllm and namespaces has 2 names"),
        ({"pool": "vllm", "selector": "app=a", "namespaces": "a"}, "selector and pool are set"),
        ({"pool": "V", "namespaces": "a"}, "pool has V; it must be a name of Kubernetes"),
        ({"pool": "vllm", "namespaces": "a", "decode_selector": "role=d"}, "pool is set beside prefill_sel"),
    ],
    ids=("no-namespace", "two-namespaces", "selector", "name", "stages"),
)
def test_options_that_name_no_pool_of_pods(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        KubernetesOptions(**options)


def test_each_source_takes_its_own_options() -> None:
    with pytest.raises(ValueError, match="pool is empty"):
        InferencePoolSource(KubernetesOptions("app=vllm"))
    with pytest.raises(ValueError, match="make an InferencePoolSource of it"):
        KubernetesSource(KubernetesOptions(pool="vllm", namespaces="default"))
