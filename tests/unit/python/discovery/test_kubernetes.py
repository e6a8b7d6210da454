"""KubernetesSource against an API server over HTTP, with watches of a fraction of a second."""

import contextlib
import datetime as dt
import json
import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.authority import Authority
from tests.fakes.followed import Followed, urls
from tests.fakes.kubernetes import FakeKubernetes, endpoint, endpoint_slice, pod
from tests.fakes.wire import PATIENCE, eventually
from vllm_router.discovery import Listing, SourceError, WorkerSpec
from vllm_router.discovery.kubernetes import KubernetesOptions, KubernetesSource, WatchCache, pods_to_specs
from vllm_router.discovery.kubernetes_client import CutError
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
A, B, C = (pod(name, ip) for name, ip in (("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")))
URL_A, URL_B, URL_C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


# What is declared, and when: no threads, and a clock that is moved by hand


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def cache_of(clock: Clock, *namespaces: str) -> WatchCache:
    return WatchCache(
        KubernetesOptions("app=vllm", ports=8000, namespaces=namespaces), clock, threading.Condition()
    )


def at(version: int, thing: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(thing))
    made["metadata"]["resourceVersion"] = str(version)
    return made


def test_a_list_is_declared_at_once_and_an_event_after_50_ms_of_quiet(clock: Clock) -> None:
    cache = cache_of(clock)
    assert cache.due_at() is None
    cache.namespaces[0].replaced([at(1, A)])
    assert cache.due_at() == clock.now
    assert urls(cache.take()) == [URL_A]
    assert cache.due_at() is None
    cache.namespaces[0].changed("ADDED", at(2, B))
    assert cache.due_at() == pytest.approx(clock.now + 0.05)
    clock.now += 0.04
    cache.namespaces[0].changed("ADDED", at(3, C))
    assert cache.due_at() == pytest.approx(clock.now + 0.05)
    assert urls(cache.take()) == [URL_A, URL_B, URL_C]


def test_a_burst_that_does_not_end_is_declared_after_a_fifth_of_a_second(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].replaced([])
    cache.take()
    begun = clock.now
    for number in range(100):
        cache.namespaces[0].changed("MODIFIED", at(number + 2, pod("a", "10.0.0.1", restarts=number)))
        clock.now += 0.04
    assert cache.due_at() == pytest.approx(begun + 0.2)


def test_what_was_deleted_is_named_and_what_is_absent_is_not(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].replaced([at(1, A), at(1, B), at(1, C)])
    cache.take()
    cache.namespaces[0].changed("DELETED", at(2, A))
    listing = cache.take()
    assert (urls(listing), listing.deleted, listing.complete) == ([URL_B, URL_C], [URL_A], True)
    cache.namespaces[0].replaced([at(1, C)])
    listing = cache.take()
    assert (urls(listing), listing.deleted) == ([URL_C], [])


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ended_was_deleted_whether_an_event_or_a_list_says_so(clock: Clock, phase: str) -> None:
    ended = at(5, pod("a", None, phase=phase))
    for tell in (lambda part: part.changed("MODIFIED", ended), lambda part: part.replaced([ended])):
        cache = cache_of(clock)
        cache.namespaces[0].replaced([at(1, A)])
        cache.take()
        tell(cache.namespaces[0])
        listing = cache.take()
        assert (urls(listing), listing.deleted) == ([], [URL_A])


def test_a_pod_of_the_same_name_that_is_another_one_is_absence(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].replaced([at(1, A)])
    cache.take()
    cache.namespaces[0].replaced([at(5, pod("a", "10.0.0.9", uid="new"))])
    listing = cache.take()
    assert (urls(listing), listing.deleted) == (["http://10.0.0.9:8000"], [])


def test_an_address_that_came_back_was_not_deleted(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].replaced([at(1, A)])
    cache.take()
    cache.namespaces[0].changed("DELETED", at(2, A))
    cache.namespaces[0].changed("ADDED", at(3, pod("x", "10.0.0.1")))
    listing = cache.take()
    assert listing.workers == [
        WorkerSpec(URL_A, incarnation="uid-of-x/0", labels={"pod": "default/x"}),
    ]
    assert listing.deleted == []


def test_events_that_come_again_or_too_late_change_nothing(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].replaced([at(10, A)])
    cache.take()
    cache.namespaces[0].changed("ADDED", at(10, A))
    cache.namespaces[0].changed("MODIFIED", at(9, pod("a", "10.0.0.1", ready=False)))
    cache.namespaces[0].changed("DELETED", at(9, A))
    cache.namespaces[0].changed("DELETED", at(11, pod("a", "10.0.0.1", uid="another")))
    cache.namespaces[0].changed("DELETED", at(11, C))
    assert cache.due_at() is None
    assert urls(cache.take()) == [URL_A]


def test_an_event_that_changes_no_worker_is_not_declared(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].replaced([at(1, A)])
    cache.take()
    cache.namespaces[0].changed("MODIFIED", at(2, pod("a", "10.0.0.1", annotations={"other": "x"})))
    assert cache.due_at() is None


def test_namespaces_are_waited_for_when_it_starts_but_not_for_ever(clock: Clock) -> None:
    cache = cache_of(clock, "one", "two")
    cache.namespaces[0].replaced([at(1, A)])
    assert cache.due_at() == clock.now + 10
    clock.now += 10
    assert cache.due_at() <= clock.now
    listing = cache.take()
    assert (urls(listing), listing.complete) == ([URL_A], False)


class _OneIsSilent:
    """An API server that lists pods of the namespace `one`, and says nothing of others until shutdown()."""

    def __init__(self) -> None:
        self._down = threading.Event()

    def get(self, namespace: str, read_secs: float, **query: Any) -> Any:  # noqa: ARG002
        if namespace == "one" and not query.get("watch"):
            return _Page({"metadata": {"resourceVersion": "7"}, "items": [A]})
        self._down.wait()
        raise CutError("closed")

    def renew(self) -> None:
        pass

    def shutdown(self) -> None:
        self._down.set()


class _Page:
    def __init__(self, page: dict[str, Any]) -> None:
        self._parts = [json.dumps(page).encode()]

    def read(self) -> bytes:
        return self._parts.pop() if self._parts else b""

    def close(self) -> None:
        pass


def test_a_namespace_that_says_nothing_does_not_hold_the_others_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_router.discovery.kubernetes._START_SECS", 0.05)
    options = KubernetesOptions("app=vllm", ports=8000, namespaces=("one", "two"))
    source = KubernetesSource(options, server=_OneIsSilent())
    listings: list[Listing] = []
    thread = threading.Thread(target=lambda: listings.append(source.look()), daemon=True)
    thread.start()
    thread.join(30)
    source.close()
    assert [(urls(listing), listing.complete) for listing in listings] == [([URL_A], False)]


def test_a_namespace_that_fails_hides_no_other_and_keeps_what_it_had(clock: Clock) -> None:
    cache = cache_of(clock, "one", "two")
    one, two = cache.namespaces
    two.failed(SourceError("forbidden", "two: 403", 30))
    one.replaced([at(1, A)])
    error = cache.take_error()
    assert error is not None
    assert (error.kind, error.message, error.again_secs) == ("forbidden", "two: 403", 0)
    assert cache.take_error() is None
    listing = cache.take()
    assert (urls(listing), listing.complete) == ([URL_A], False)
    two.replaced([at(1, pod("b", "10.0.0.2", namespace="two"))])
    listing = cache.take()
    assert (urls(listing), listing.complete) == ([URL_A, URL_B], True)
    two.failed(SourceError("forbidden", "two: 403", 30))
    one.changed("DELETED", at(2, A))
    listing = cache.take()
    assert (urls(listing), listing.complete, listing.deleted) == ([URL_B], True, [URL_A])


def test_a_failure_is_looked_into_again_when_it_says_so_unless_there_is_something_to_declare(
    clock: Clock,
) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].failed(SourceError("forbidden", "403", 30))
    error = cache.take_error()
    assert error is not None
    assert error.again_secs == 30
    cache.namespaces[0].replaced([at(1, A)])
    cache.namespaces[0].failed(SourceError("forbidden", "403", 30))
    error = cache.take_error()
    assert error is not None
    assert error.again_secs == 0


def test_a_failure_that_is_over_is_not_said(clock: Clock) -> None:
    cache = cache_of(clock)
    cache.namespaces[0].failed(SourceError("unreachable", "x", 1))
    cache.namespaces[0].replaced([])
    assert cache.take_error() is None


def test_a_warning_is_logged_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    cache = cache_of(clock)
    bad = pod("a", "10.0.0.1", annotations={"vllm.ai/weight": "heavy"})
    for version in range(5):
        cache.namespaces[0].changed("MODIFIED", at(version, bad))
    for number in range(2000):  # memory of it has a limit
        cache._warn(str(number))
    assert caplog.text.count("pod default/a: annotation vllm.ai/weight is heavy") == 1
    assert len(cache._warned) == 1000


EVENTS = st.tuples(
    st.sampled_from(["ADDED", "MODIFIED", "DELETED", "LIST"]),
    st.lists(
        st.builds(
            lambda name, ip, version, ready, phase, uid: at(
                version, pod(name, f"10.0.0.{ip}", ready=ready, phase=phase, uid=f"{name}{uid}")
            ),
            *(st.sampled_from("abc"), st.integers(1, 4), st.integers(1, 9), st.booleans()),
            *(st.sampled_from(["Running", "Pending", "Failed"]), st.integers(0, 1)),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda one: one["metadata"]["name"],
    ),
)


@given(events=st.lists(EVENTS, max_size=20), last=EVENTS)
def test_after_any_events_one_list_is_the_whole_truth(events: list[Any], last: Any) -> None:
    cache = cache_of(Clock())
    for kind, pods in events:
        if kind == "LIST":
            cache.namespaces[0].replaced(pods)
            listing = cache.take()
            assert listing.workers == pods_to_specs(pods, cache._options)
        else:
            cache.namespaces[0].changed(kind, pods[0])
            listing = cache.take()
        assert not set(listing.deleted) & set(urls(listing))
    cache.namespaces[0].replaced(last[1])
    assert cache.take().workers == pods_to_specs(last[1], cache._options)


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([], "0 pods in models match app=vllm"),
        (
            [pod("a", None, phase="Pending", namespace="models")],
            "1 pods in models match app=vllm, and none of them has started and has an address and one of the "
            "ports 8000",
        ),
    ],
)
def test_a_list_without_workers_says_what_was_looked_for(
    pods: list[Any], said: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    cache = cache_of(clock, "models")
    cache.namespaces[0].replaced(pods)
    assert urls(cache.take()) == []
    assert caplog.messages == [f"source kubernetes: {said}"]


# Over HTTP, with the client


@pytest.fixture
def clusters() -> Iterator[Callable[..., FakeKubernetes]]:
    """API servers that end after what follows them: a client that connects then is reset."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(FakeKubernetes(**options))


@pytest.fixture
def cluster(clusters: Callable[..., FakeKubernetes]) -> FakeKubernetes:
    return clusters()


@pytest.fixture
def follow(cluster: FakeKubernetes, tmp_path: Path) -> Iterator[Callable[..., Followed]]:
    made: list[Followed] = []

    def start(timing: Timing = FAST, **options: Any) -> Followed:
        options = {"namespaces": ["default"], "ports": 8000, **options}
        if "service" not in options and "decode_selector" not in options:
            options.setdefault("selector", "app=vllm")
        if "kubeconfig" not in options:
            options["kubeconfig"] = cluster.kubeconfig(tmp_path)
        made.append(Followed())
        made[-1].start(
            KubernetesSource(KubernetesOptions(**options), timing=timing, randomness=random.Random(1))
        )
        return made[-1]

    yield start
    for one in made:
        one.source.close()
        one.thread.join(PATIENCE)
        for thread in one.source._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_pods_come_change_and_go(cluster: FakeKubernetes, follow: Callable[..., Followed]) -> None:
    cluster.put(A)
    seen = follow()
    seen.until_urls(URL_A)
    cluster.wait_watching()
    cluster.put(B)
    assert all(one.ready for one in seen.until_urls(URL_A, URL_B).workers or ())
    cluster.put(pod("b", "10.0.0.2", ready=False))
    seen.until(lambda: [one.ready for one in seen.listings[-1].workers or ()] == [True, False])
    cluster.put(pod("b", "10.0.0.2", **DELETED))
    seen.until(lambda: [one.leaving for one in seen.listings[-1].workers or ()] == [False, True])
    assert (seen.listings[-1].workers or ())[1].drain_secs == 55
    cluster.delete(B)
    assert seen.until_urls(URL_A).deleted == [URL_B]
    cluster.put(pod("a", "10.0.0.1", labels={"app": "other"}))
    assert seen.until_urls().deleted == [URL_A]
    assert cluster.count("list") == 1
    assert cluster.requests[0].query["labelSelector"] == "app=vllm"
    assert cluster.requests[0].query["resourceVersion"] == "0"
    assert cluster.requests[1].query["allowWatchBookmarks"] in ("true", "True")
    assert seen.errors == []


def test_an_annotation_names_the_models_of_a_pod(
    cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(pod("a", "10.0.0.1", annotations={"vllm.ai/models": "org/a,sql"}))
    seen = follow()
    seen.until_urls(URL_A)
    assert (seen.listings[-1].workers or ())[0].models == ("org/a", "sql")
    cluster.wait_watching()
    cluster.put(pod("a", "10.0.0.1", annotations={"vllm.ai/models": "org/a"}))
    seen.until(lambda: [one.models for one in seen.listings[-1].workers or ()] == [("org/a",)])
    cluster.put(A)
    seen.until(lambda: [one.models for one in seen.listings[-1].workers or ()] == [()])
    assert seen.errors == []


STAGES: dict[str, Any] = {
    "prefill_selector": {"app": "vllm", "role": "prefill"},
    "decode_selector": {"app": "vllm", "role": "decode"},
}


def staged(name: str, ip: str, *roles: str, **more: Any) -> dict[str, Any]:
    """A pod of a role; of two roles it matches `both` selectors of the test below."""
    return pod(
        name, ip, labels={"app": "vllm", **{f"is-{role}": "yes" for role in roles}, "role": roles[0]}, **more
    )


def test_labels_say_which_stage_a_pod_is_of(cluster: FakeKubernetes, follow: Callable[..., Followed]) -> None:
    cluster.put(staged("a", "10.0.0.1", "prefill", annotations={"vllm.ai/bootstrap-port": "8999"}))
    cluster.put(staged("b", "10.0.0.2", "decode"))
    cluster.put(staged("c", "10.0.0.3", "encode"))
    seen = follow(**STAGES)
    a, b = seen.until_urls(URL_A, URL_B).workers or ()
    assert (a.worker_type, a.bootstrap_port, b.worker_type, b.bootstrap_port) == (
        "prefill",
        8999,
        "decode",
        None,
    )
    cluster.wait_watching()
    # The pods of another role are not even sent.
    assert cluster.requests[0].query["labelSelector"] == "app in (vllm),role in (decode,prefill)"
    cluster.put(staged("a", "10.0.0.1", "decode"))
    assert seen.until_worker(URL_A, lambda one: one.worker_type == "decode").bootstrap_port is None
    assert seen.deleted == []  # it is the same URL, which the router takes for a new worker
    cluster.put(staged("b", "10.0.0.2", "other"))
    assert seen.until_urls(URL_A).deleted == [URL_B]
    assert (cluster.count("list"), cluster.count("watch"), seen.errors) == (1, 1, [])


def test_many_pods_of_both_stages_are_counted(clock: Clock) -> None:
    options = KubernetesOptions(ports=8000, prefill_selector="app=vllm", decode_selector="app")
    cache = WatchCache(options, clock, threading.Condition())
    cache.namespaces[0].replaced([at(1, pod(f"p{i}", f"10.0.0.{i}")) for i in range(1, 6)])
    assert urls(cache.take()) == []
    error = cache.take_error()
    assert error is not None
    assert error.message.count("matches both") == 3
    assert error.message.endswith("; 2 more pods are left out")
    assert cache.take_error() is None


def test_a_stage_without_workers_is_said(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    cache = WatchCache(KubernetesOptions(ports=8000, **STAGES), clock, threading.Condition())
    cache.namespaces[0].replaced([at(1, staged("a", "10.0.0.1", "prefill"))])
    cache.take()
    assert [record.message for record in caplog.records] == [
        "source kubernetes: no pod in all namespaces matches decode_selector app=vllm,role=decode, has "
        "started and has an address and one of the ports 8000, so there is no decode worker"
    ]


def test_1_200_pods_in_pages(cluster: FakeKubernetes, follow: Callable[..., Followed]) -> None:
    for number in range(1200):
        cluster.put(pod(f"p{number}", f"10.0.{number // 250}.{number % 250}"))
    seen = follow()
    seen.until(lambda: bool(seen.listings))
    assert len(urls(seen.listings[0])) == 1200
    assert cluster.count("list") == 3


def test_endpoints_of_a_service(cluster: FakeKubernetes, follow: Callable[..., Followed]) -> None:
    cluster.put(endpoint_slice("s", endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b", ready=False)))
    cluster.put(endpoint_slice("t", endpoint("10.0.0.9"), service="other"))
    seen = follow(service="vllm")
    listing = seen.until_urls(URL_A, URL_B)
    assert [one.ready for one in listing.workers or ()] == [True, False]
    cluster.wait_watching()
    cluster.put(endpoint_slice("s", endpoint("10.0.0.2", "b")))
    assert seen.until_urls(URL_B).deleted == [URL_A]
    assert {one.resource for one in cluster.requests} == {"endpointslices"}


@pytest.mark.parametrize("options", [{"service": "vllm"}, {}])
def test_all_namespaces(
    options: dict[str, Any], cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(A)
    cluster.put(pod("b", "10.0.0.2", namespace="two"))
    cluster.put(endpoint_slice("s", endpoint("10.0.0.1", "a")))
    cluster.put(endpoint_slice("s", endpoint("10.0.0.2", "b"), namespace="two"))
    follow(namespaces=(), **options).until_urls(URL_A, URL_B)
    assert cluster.requests[0].namespace == ""


def test_one_namespace_of_two_is_forbidden(cluster: FakeKubernetes, follow: Callable[..., Followed]) -> None:
    cluster.put(A)
    cluster.put(pod("b", "10.0.0.2", namespace="two"))
    cluster.forbidden.add(("list", "two"))
    seen = follow(namespaces=["default", "two"])
    assert seen.until_urls(URL_A).complete is False
    assert "namespace two: cannot list: 403" in seen.until_error("forbidden").message
    cluster.put(C)
    seen.until_urls(URL_A, URL_C)
    cluster.forbidden.clear()
    assert seen.until_urls(URL_A, URL_B, URL_C).complete is True
    cluster.forbidden.update({("list", "two"), ("watch", "two")})
    cluster.compact()
    cluster.cut()
    cluster.wait_requests("list", cluster.count("list", "two") + 1, "two")
    cluster.delete(A)
    assert URL_A in seen.until_urls(URL_B, URL_C).deleted


def test_a_deletion_that_a_silent_watch_loses_is_an_absence(
    cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(A)
    cluster.put(B)
    cluster.fault = "silent"
    seen = follow(Timing(window=(0.05, 0.1), slack=0.1, short=0.02, backoff=(0.01, 0.05)))
    seen.until_urls(URL_A, URL_B)
    cluster.wait_watching()
    cluster.lose(B)
    seen.until_urls(URL_A)
    assert seen.source.restarts["timeout"] >= 1
    assert seen.deleted == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("gone_event", "gone"),
        ("gone_status", "gone"),
        ("empty", "gone"),
        ("error_event", "error"),
        ("garbage", "error"),
    ],
)
def test_a_deletion_that_was_compacted_away_is_an_absence(
    fault: str, reason: str, cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(A)
    cluster.put(B)
    seen = follow(Timing(**{**vars(FAST), "short": PATIENCE}))
    seen.until_urls(URL_A, URL_B)
    cluster.wait_watching()
    cluster.lose(B)
    cluster.compact()
    cluster.fault = fault
    cluster.cut()
    seen.until_urls(URL_A)
    cluster.fault = ""
    cluster.put(C)
    seen.until_urls(URL_A, URL_C)
    assert seen.source.restarts[reason] >= 1
    assert seen.deleted == []


def test_watches_that_are_cut_lose_nothing_and_need_no_list(
    cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    seen = follow(Timing(**{**vars(FAST), "short": 0.0}))
    expected: list[str] = []
    for number in range(1, 6):
        cluster.wait_requests("watch", number)
        cluster.wait_watching()
        cluster.put(pod(f"p{number}", f"10.0.0.{number}"))
        expected.append(f"http://10.0.0.{number}:8000")
        seen.until_urls(*expected)
        cluster.cut()
    assert cluster.count("list") == 1
    assert seen.source.restarts["cut"] >= 4


def test_watches_that_the_server_closes_go_on(
    clusters: Callable[..., FakeKubernetes], follow: Callable[..., Followed], tmp_path: Path
) -> None:
    short = clusters(watch_secs=0.05)
    seen = follow(kubeconfig=short.kubeconfig(tmp_path))
    short.wait_requests("watch", 4)
    short.put(A)
    seen.until_urls(URL_A)
    assert short.count("list") == 1


def test_everything_is_listed_again_in_time(cluster: FakeKubernetes, follow: Callable[..., Followed]) -> None:
    cluster.put(A)
    seen = follow(Timing(**{**vars(FAST), "resync": 0.1}))
    seen.until_urls(URL_A)
    cluster.wait_watching()
    cluster.lose(A)
    cluster.bookmark()  # an event when it is time ends the watch
    eventually(lambda: bool(cluster.bookmark()) or seen.source.restarts["resync"] > 0)
    assert seen.until_urls().deleted == []


def test_a_cache_that_lags_does_not_bring_a_pod_back(
    cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(A)
    cluster.put(B)
    cluster.lag()
    seen = follow(Timing(window=(0.05, 0.1), slack=0.1, short=0.02, backoff=(0.01, 0.05)))
    cluster.wait_watching()
    cluster.delete(A)
    seen.until_urls(URL_B)
    before = len(seen.listings)
    cluster.fault = "silent"
    seen.until(lambda: len(seen.listings) >= before + 2)
    assert [urls(one) for one in seen.listings[before:]] == [[URL_B]] * (len(seen.listings) - before)


def test_a_token_that_was_rotated_is_read_again(
    cluster: FakeKubernetes, follow: Callable[..., Followed], tmp_path: Path
) -> None:
    cluster.put(A)
    seen = follow(Timing(**{**vars(FAST), "backoff": (PATIENCE, PATIENCE)}))
    seen.until_urls(URL_A)
    cluster.wait_watching()
    with cluster.changed:
        cluster.rotate("token-2")
        cluster.kubeconfig(tmp_path)
    cluster.wait_requests("watch", 3)  # the first, one with the old token, one with the new
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)
    assert seen.errors == []
    assert cluster.count("list") == 1


def test_a_token_that_stays_wrong_is_an_error_and_heals(
    cluster: FakeKubernetes, follow: Callable[..., Followed], tmp_path: Path
) -> None:
    cluster.put(A)
    seen = follow()
    seen.until_urls(URL_A)
    cluster.rotate("token-2")
    assert "401" in seen.until_error("unauthorized").message
    cluster.kubeconfig(tmp_path)
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)


@pytest.mark.parametrize(("status", "kind"), [(429, "throttled"), (503, "unavailable")])
def test_retry_after(
    status: int, kind: str, cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(A)
    cluster.refuse(status, "too many requests", Retry_After="0")
    seen = follow()
    error = seen.until_error(kind)
    assert error.again_secs == FAST.backoff[0]
    assert error.message == f"pods in namespace default: cannot list: {status}: too many requests"
    seen.until_urls(URL_A)
    assert cluster.count("list") == 2  # and not the retries of urllib3


def test_an_api_server_that_is_away(follow: Callable[..., Followed], tmp_path: Path) -> None:
    with FakeKubernetes() as gone:
        kubeconfig = gone.kubeconfig(tmp_path)
    error = follow(kubeconfig=kubeconfig).until_error("unreachable")
    assert error.message.startswith("pods in namespace default: the API server cannot be reached: ")


def test_a_kubeconfig_that_is_not_there_yet(
    cluster: FakeKubernetes, follow: Callable[..., Followed], tmp_path: Path
) -> None:
    cluster.put(A)
    place = tmp_path / "later"
    place.mkdir()
    seen = follow(kubeconfig=place / "kubeconfig.json")
    assert "kubeconfig.json" in seen.until_error("config").message
    cluster.kubeconfig(place)
    seen.until_urls(URL_A)


def test_a_context_that_is_not_there(follow: Callable[..., Followed]) -> None:
    assert "other" in follow(context="other").until_error("config").message


def test_a_selector_that_the_api_server_rejects(
    cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.refuse(400, "unable to parse requirement", times=3)
    assert "unable to parse requirement" in follow(selector="a ==== b").until_error("bad_request").message


@pytest.mark.parametrize("fault", ["", "silent"])
def test_close_ends_a_look_that_waits_and_the_watch(
    fault: str, cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.fault = fault
    seen = follow()
    cluster.wait_watching()
    seen.until_urls()
    seen.source.close()
    seen.source.close()
    seen.thread.join(PATIENCE / 3)  # far less than the watch and its read timeout
    assert not seen.thread.is_alive()
    for thread in seen.source._threads:
        thread.join(PATIENCE / 3)
        assert not thread.is_alive()
    with pytest.raises(SourceError, match="closed"):
        seen.source.look()


def test_closed_before_the_first_look_it_starts_nothing(cluster: FakeKubernetes, tmp_path: Path) -> None:
    options = KubernetesOptions("app=vllm", kubeconfig=cluster.kubeconfig(tmp_path))
    source = KubernetesSource(options)
    source.close()
    with pytest.raises(SourceError, match="closed"):
        source.look()
    assert cluster.requests == []


def test_a_fault_of_ours_is_said_and_everything_listed_again(
    follow: Callable[..., Followed], cluster: FakeKubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(A)
    broken = iter([RuntimeError("odd")])
    real = WatchCache.cached

    def cached(self: WatchCache, thing: dict[str, Any]) -> Any:
        for error in broken:
            raise error
        return real(self, thing)

    monkeypatch.setattr(WatchCache, "cached", cached)
    seen = follow()  # with everything listed again after 30 s, which is not waited for
    assert seen.until_error("internal").message == "RuntimeError: odd"
    seen.until_urls(URL_A)


def test_what_may_be_listed_but_not_watched_is_declared_before_that_is_said(
    cluster: FakeKubernetes, follow: Callable[..., Followed]
) -> None:
    cluster.put(A)
    cluster.forbidden.add(("watch", "default"))
    seen = follow()
    seen.until_urls(URL_A)
    assert "cannot watch: 403" in seen.until_error("forbidden").message
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)
    assert max(error.again_secs or 0 for error in seen.errors) <= FAST.forbidden


def test_without_the_package_it_can_be_imported_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ImportError) as raised:
        KubernetesSource(KubernetesOptions("app=vllm"))
    assert str(raised.value) == (
        "Kubernetes discovery needs the package kubernetes: pip install 'vllm-router[kubernetes]'"
    )


def test_in_a_cluster_the_service_account_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text("token-1")
    (tmp_path / "ca.crt").write_text("a certificate")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    source = KubernetesSource(KubernetesOptions("app=vllm"))
    made = source._server._configuration()  # type: ignore[attr-defined]
    assert made.host == "https://127.0.0.1:1"
    assert made.auth_settings()["BearerToken"]["value"].lower() == "bearer token-1"
    assert made.retries is False


def test_a_token_file_that_is_empty_for_a_while_is_an_error_that_heals(
    clusters: Callable[..., FakeKubernetes],
    follow: Callable[..., Followed],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from kubernetes.config import incluster_config

    class Eager(incluster_config.InClusterConfigLoader):
        """Reads the token for each request, and not just once a minute."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._token_refresh_period = dt.timedelta(0)

    token, authority = tmp_path / "token", Authority(tmp_path)
    token.write_text("token-1")
    monkeypatch.setattr(incluster_config, "InClusterConfigLoader", Eager)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", authority.path)
    cluster = clusters(authority=authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", cluster.url.rpartition(":")[2])
    cluster.put(A)
    seen = follow(kubeconfig=None)
    seen.until_urls(URL_A)
    cluster.wait_watching()
    token.write_text("")
    cluster.cut()
    assert "Token file exists but empty" in seen.until_error("config").message
    token.write_text("token-1")
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)
    assert {error.kind for error in seen.errors} == {"config"}
    assert cluster.count("list") == 1


def test_a_watch_over_tls_ends_with_close(
    clusters: Callable[..., FakeKubernetes], follow: Callable[..., Followed], tmp_path: Path
) -> None:
    cluster = clusters(authority=Authority(tmp_path))
    cluster.put(A)
    seen = follow(kubeconfig=cluster.kubeconfig(tmp_path))
    seen.until_urls(URL_A)
    cluster.wait_watching()
    cluster.put(B)
    seen.until_urls(URL_A, URL_B)
    seen.source.close()
    for thread in seen.source._threads:
        thread.join(PATIENCE / 3)
        assert not thread.is_alive()


def test_an_api_server_with_another_certificate(
    clusters: Callable[..., FakeKubernetes], follow: Callable[..., Followed], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    cluster = clusters(authority=Authority(tmp_path))
    path = Path(cluster.kubeconfig(tmp_path))
    path.write_text(path.read_text().replace(cluster._authority.path, Authority(tmp_path / "other").path))
    error = follow(kubeconfig=path).until_error("unreachable")
    assert "CERTIFICATE_VERIFY_FAILED" in error.message


def test_logs_have_no_token(
    cluster: FakeKubernetes, follow: Callable[..., Followed], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen = follow()
    seen.until_urls()
    cluster.rotate("token-2")
    error = seen.until_error("unauthorized")
    assert "token-1" not in caplog.text + error.message
