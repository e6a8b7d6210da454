"""Router.reconcile(), follow() and adopt(), and the sources that a served router follows by its settings."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import vllm_router.discovery
from tests.fakes.kubernetes import FakeKubernetes, pod
from tests.fakes.wire import eventually
from tests.fakes.worker import RefusingPort
from vllm_router import Router, RouterError
from vllm_router.discovery import Difference, FileSource, Listing, Source, WorkerSpec
from vllm_router.discovery.kubernetes import KubernetesOptions
from vllm_router.router_args import RouterArgs
from vllm_router.testing import SimulatedWorker

A, B, C = WorkerSpec("http://a:1"), WorkerSpec("http://b:1"), WorkerSpec("http://c:1")


class Recording(Router):
    """A router that records what its core is told."""

    said: list[tuple[Any, ...]]

    def _reconcile(self, *arguments: Any) -> tuple[list[str], list[str], list[str], list[str]]:
        self.said.append(arguments)
        return ["joined"], ["left"], ["changed"], ["held"]


@pytest.fixture
def recording() -> Recording:
    router = Recording()
    router.said = []
    return router


class Fixed(Source):
    """One list, and then never anything new."""

    def __init__(self, name: str, *workers: WorkerSpec) -> None:
        self.name = name
        self.workers = list(workers)
        self.closed = threading.Event()
        self.looks = 0

    def look(self) -> Listing:
        self.looks += 1
        if self.looks > 1:
            self.closed.wait()
            return Listing(None)
        return Listing(self.workers, again_secs=0)

    def close(self) -> None:
        self.closed.set()


# One list


def test_the_core_gets_specs_and_a_difference_comes_back(recording: Recording) -> None:
    difference = recording.reconcile(
        "mine", iter([A, WorkerSpec("http://b:1", weight=2)]), complete=False, deleted=("http://c:1",)
    )
    assert difference == Difference(["joined"], ["left"], ["changed"], ["held"])
    assert difference.held == ["held"]
    recording.reconcile("mine", None)
    assert recording.said == [
        (
            "mine",
            [A, WorkerSpec("http://b:1", weight=2)],
            False,
            ["http://c:1"],
        ),
        ("mine", None, True, []),
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (("Mine", []), ValueError, "the name of the source is Mine; it must be 1 to 32 characters"),
        (("static", []), ValueError, "the name of the source is static, which belongs to the router itself"),
        (("mine", ["http://a:1"]), TypeError, "workers holds http://a:1; it must hold WorkerSpec: write Wor"),
        (
            ("mine", "http://a:1"),
            TypeError,
            "workers is of type str; it must be a list of WorkerSpec, or Non",
        ),
        (("mine", 7), TypeError, "workers is of type int; it must be a list of WorkerSpec, or None"),
    ],
)
def test_a_list_that_the_core_never_sees(
    recording: Recording, arguments: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        recording.reconcile(*arguments)
    assert recording.said == []


def test_a_deleted_url_is_a_text(recording: Recording) -> None:
    with pytest.raises(TypeError, match="deleted holds 7; it must hold URLs as str"):
        recording.reconcile("mine", [], deleted=[7])  # type: ignore[list-item]
    for deleted in (5, None, {"http://a:1": True}):
        with pytest.raises(TypeError, match=r"deleted is of type \w+; it must be a list of URLs"):
            recording.reconcile("mine", [], deleted=deleted)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="deleted URLs need a list beside them"):
        recording.reconcile("mine", None, deleted="http://a:1")
    assert recording.said == []


def test_no_message_about_a_list_shows_a_password() -> None:
    for urls, deleted in ((["http://user:hunter2@a:1"], []), ([], ["http://user:hunter2@a:1"])):
        with pytest.raises(ValueError, match="without anything before an '@'") as caught:
            Router().reconcile("mine", [WorkerSpec(url) for url in urls], deleted=deleted)
        assert "hunter2" not in str(caught.value)


def test_the_fleet_becomes_what_is_declared_beside_what_was_there() -> None:
    router = Router(worker_urls=["http://own:1"], discovery_guard=1)
    assert router.reconcile("mine", [A, B]) == Difference(["http://a:1", "http://b:1"], [], [], [])
    assert router.worker_urls == ["http://own:1", "http://a:1", "http://b:1"]
    changed = router.reconcile("mine", [WorkerSpec("http://a:1", weight=3), C])
    assert changed == Difference(["http://c:1"], ["http://b:1"], ["http://a:1"], [])
    weights = {worker.url: worker.weight for worker in router.workers}
    assert weights == {"http://own:1": 1.0, "http://a:1": 3.0, "http://c:1": 1.0}


def test_a_mistake_in_a_list_changes_nothing() -> None:
    router = Router()
    router.reconcile("mine", [A])
    for workers in ([B, WorkerSpec("htp://c")], [B, B]):
        with pytest.raises(ValueError, match=r"htp|twice"):
            router.reconcile("mine", workers)
    with pytest.raises(RouterError):
        router.reconcile("mine", [WorkerSpec("http://many:1", data_parallel_size=4096), B])
    assert router.worker_urls == ["http://a:1"]


def test_an_empty_list_is_held_until_it_is_adopted() -> None:
    router = Router()
    router.reconcile("mine", [A, B])
    assert router.reconcile("mine", []).held == ["http://a:1", "http://b:1"]
    assert router.worker_urls == ["http://a:1", "http://b:1"]
    assert sorted(router.adopt("mine")) == ["http://a:1", "http://b:1"]
    assert router.worker_urls == []
    assert router.adopt("mine") == []
    with pytest.raises(ValueError, match="yours"):
        router.adopt("yours")


# A source


def test_a_program_follows_a_source_of_its_own() -> None:
    router = Router()
    assert not router.is_following
    with router.follow(Fixed("mine", A, B)) as follower:
        assert follower.first(30)
        assert router.is_following
        assert router.worker_urls == ["http://a:1", "http://b:1"]
    assert not router.is_following
    assert router.worker_urls == ["http://a:1", "http://b:1"]  # it stays as it is


def test_a_source_s_name_is_followed_once_at_a_time() -> None:
    router = Router()
    again = r"a source named mine is followed already; stop\(\) that one"
    with (
        router.follow(Fixed("mine", A)),
        router.follow(Fixed("yours", B)),
        pytest.raises(ValueError, match=again),
    ):
        router.follow(Fixed("mine", C))
    with router.follow(Fixed("mine", A, C)) as follower:
        assert follower.first(30)
        assert set(router.worker_urls) >= {"http://a:1", "http://c:1"}


def test_what_is_no_source_is_not_followed() -> None:
    router = Router()
    with pytest.raises(TypeError, match="it must be a vllm_router Source"):
        router.follow("workers.yaml")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="which belongs to the router itself"):
        router.follow(Fixed("api"))
    assert not router.is_following


# A server


def asked(url: str, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()


def ready(url: str) -> tuple[int, str]:
    return asked(url, "GET", "/readiness")


def discovery_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("discovery-")}


def test_a_served_router_follows_its_file_until_the_server_has_stopped(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    before = discovery_threads()
    with SimulatedWorker() as worker:
        path.write_text(f"workers: [{worker.url}]\n")
        router = Router()
        with router.serve(worker_file=str(path)) as server:
            eventually(lambda: router.worker_urls == [worker.url])
            eventually(lambda: ready(server.url)[0] == 200)
            assert len(discovery_threads() - before) == 1
            assert router.is_following
        assert not router.is_following
        assert discovery_threads() == before
        server.stop()  # once more does nothing


def test_a_server_waits_for_the_first_list(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    with Router().serve(worker_file=str(path)) as server:
        eventually(lambda: f"{path} cannot be read" in ready(server.url)[1])
        status, body = ready(server.url)
        assert status == 503
        assert "waiting for file" in body
        status, body = asked(server.url, "POST", "/v1/completions", '{"prompt": "a"}')
        assert status == 503
        assert "the fleet has 0 workers; waiting for file" in body
        assert str(path) not in body, "a client need not know where the router reads"


def test_a_worker_of_a_source_joins_once_it_is_healthy(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    with RefusingPort() as refusing, SimulatedWorker() as worker:
        path.write_text(f"workers: ['{refusing.url}', '{worker.url}']\n")
        router = Router()
        with router.serve(worker_file=str(path)) as server:
            eventually(lambda: router.worker_urls == [worker.url])
            eventually(lambda: ready(server.url)[0] == 200)


def test_a_server_that_cannot_start_follows_nothing(tmp_path: Path) -> None:
    before = discovery_threads()
    router = Router()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="port"):
            router.serve(port=taken.getsockname()[1], worker_file=str(tmp_path / "w"))
    assert not router.is_following
    assert discovery_threads() == before


def test_a_source_that_blocks_does_not_keep_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looking, freed = threading.Event(), threading.Event()

    class Stuck(Source):
        name = "file"

        def __init__(self, path: str) -> None:
            pass

        def look(self) -> Listing:
            looking.set()
            freed.wait()
            return Listing([])

    monkeypatch.setattr(vllm_router.discovery, "FileSource", Stuck, raising=False)
    try:
        with Router().serve(worker_file=str(tmp_path / "w")):
            assert looking.wait(30)
        assert "source file: did not stop within 2 s; its thread is abandoned" in caplog.messages
    finally:
        freed.set()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"worker_dns": ["http://a"]},
            "--worker-dns needs the package dnspython: pip install 'vllm-router[d",
        ),
        ({"worker_srv": ["a.b"]}, "--worker-srv needs the package dnspython: pip install 'vllm-router[dns]'"),
        (
            {"worker_dns": ["http://a"], "worker_srv": ["a.b"]},
            "--worker-dns and --worker-srv need the package dnspython: pip install",
        ),
    ],
)
def test_dns_without_its_package_is_an_error_at_the_start(
    options: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dns", None)
    monkeypatch.setitem(sys.modules, "dns.resolver", None)
    with pytest.raises(ImportError, match=re.escape(sentence)):
        Router().serve(**options)
    with pytest.raises(ImportError, match=re.escape(sentence)):
        Router.from_args(RouterArgs(port=0, **options)).start()


def test_settings_of_dns_reach_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dns.resolver")
    made = []

    def source(*arguments: Any, **named: Any) -> Source:
        made.append((arguments, named))
        return Fixed("dns")

    monkeypatch.setattr(vllm_router.discovery, "DnsSource", source, raising=False)
    router = Router.from_args(RouterArgs(worker_dns=["http://a"]))
    with router.serve(worker_dns=["http://a:1"], worker_srv=["b.c"], dns_server="::1", dns_max_secs=9):
        assert router.is_following
    assert made == [((["http://a:1"], ["b.c"]), {"server": "::1", "min_secs": 1, "max_secs": 9})]


def test_names_of_stages_reach_the_source_of_a_router_with_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dns.resolver")
    made = []

    def source(*arguments: Any, **named: Any) -> Source:
        made.append((arguments, named))
        return Fixed("dns")

    monkeypatch.setattr(vllm_router.discovery, "DnsSource", source, raising=False)
    names: dict[str, Any] = {"prefill_dns": ["http://p:1"], "decode_srv": ["d.x"]}
    with Router(vllm_pd_disaggregation=True).serve(**names):
        pass
    given = {"prefill_hosts": ["http://p:1"], "decode_srv": ["d.x"]}
    assert made == [(([], []), {"server": None, "min_secs": 1, "max_secs": 30, **given})]
    with Router().serve(**names):  # which has no stages
        pass
    assert len(made) == 1


def described(url: str) -> dict[str, tuple[Any, ...]]:
    """Of each worker: type, bootstrap port, weight, and whether it gets requests."""
    rows = json.loads(asked(url, "GET", "/workers")[1])["workers"]
    return {
        row["url"]: (row["worker_type"], row.get("bootstrap_port"), row["weight"], not row["draining"])
        for row in rows
    }


def test_a_file_says_all_of_a_fleet_of_two_stages(tmp_path: Path) -> None:
    file = tmp_path / "workers.yaml"

    def write(*rows: str) -> None:
        other = tmp_path / "other.yaml"
        other.write_text("workers:\n" + "".join(f"  - {{{row}}}\n" for row in rows))
        other.replace(file)

    with SimulatedWorker(stage="prefill") as p, SimulatedWorker(stage="decode") as d:
        prefill = f"url: '{p.url}', worker_type: prefill"
        decode = f"url: '{d.url}', worker_type: decode"
        write(f"{prefill}, bootstrap_port: 8999, data_parallel_size: 2", f"{decode}, weight: 2")
        router = Router(vllm_pd_disaggregation=True, decode_data_parallel_size=1, policy="round_robin")
        with router.serve(worker_file=str(file)) as server:
            ranks = {f"{p.url}@{rank}": ("prefill", 8999, 1.0, True) for rank in (0, 1)}
            eventually(lambda: described(server.url) == {**ranks, d.url: ("decode", None, 2.0, True)})
            eventually(lambda: ready(server.url)[0] == 200)
            body = json.dumps({"model": "simulated-model", "prompt": "one two three", "max_tokens": 3})
            status, text = asked(server.url, "POST", "/v1/completions", body)
            assert status == 200, text
            # Another port is another engine; a weight is not.
            write(f"{prefill}, bootstrap_port: 9000", f"{decode}, weight: 0.5")
            eventually(
                lambda: (
                    described(server.url)
                    == {p.url: ("prefill", 9000, 1.0, True), d.url: ("decode", None, 0.5, True)}
                )
            )
            write(f"{prefill}, bootstrap_port: 9000, leaving: true", decode)
            eventually(lambda: ready(server.url)[0] == 503)
            eventually(lambda: [url for url, row in described(server.url).items() if row[3]] == [d.url])
            # A mistake in one row changes nothing: not even the others.
            write(f"url: '{p.url}'", f"{decode}, weight: 3")
            eventually(lambda: "has no stage" in asked(server.url, "GET", "/admin/discovery")[1])
            assert described(server.url)[d.url][2] == 1.0
            write(prefill, decode)
            eventually(lambda: ready(server.url)[0] == 200)


def test_kubernetes_without_its_package_is_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kubernetes", "kubernetes.client"):
        monkeypatch.setitem(sys.modules, name, None)
    sentence = "Kubernetes discovery needs the package kubernetes: pip install 'vllm-router[kubernetes]'"
    options: dict[str, Any] = {"service_discovery": True, "selector": {"app": "vllm"}}
    with pytest.raises(ImportError, match=re.escape(sentence)):
        Router().serve(**options)
    with pytest.raises(ImportError, match=re.escape(sentence)):
        Router.from_args(RouterArgs(port=0, **options)).start()


def test_settings_of_kubernetes_reach_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def source(options: KubernetesOptions) -> Source:
        made.append(options)
        return Fixed("kubernetes")

    monkeypatch.setattr(vllm_router.discovery, "KubernetesSource", source, raising=False)
    with Router().serve(service_discovery=True, selector={"app": "vllm"}) as server:
        assert server.url
    options: dict[str, Any] = {
        "service_discovery_port": [8000, "http"],
        "service_discovery_namespace": "models",
        "service_discovery_service": "vllm",
        "kubeconfig": "config",
        "kube_context": "prod",
        "discovery_resync_secs": 30,
    }
    with Router().serve(service_discovery=True, **options):
        pass
    assert made == [
        KubernetesOptions({"app": "vllm"}),
        KubernetesOptions(
            ports=(8000, "http"),
            namespaces=("models",),
            service="vllm",
            kubeconfig="config",
            context="prod",
            resync_secs=30,
        ),
    ]


def test_a_pool_reaches_its_own_source(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def source(options: KubernetesOptions) -> Source:
        made.append(options)
        return Fixed("kubernetes")

    monkeypatch.setattr(vllm_router.discovery, "InferencePoolSource", source, raising=False)
    options: dict[str, Any] = {"inference_pool": "vllm", "service_discovery_namespace": "models"}
    with Router().serve(service_discovery=True, **options):
        pass
    assert made == [KubernetesOptions(pool="vllm", namespaces=("models",))]


def test_selectors_of_stages_reach_the_source_of_a_router_with_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def source(options: KubernetesOptions) -> Source:
        made.append(options)
        return Fixed("kubernetes")

    monkeypatch.setattr(vllm_router.discovery, "KubernetesSource", source, raising=False)
    selectors: dict[str, Any] = {"prefill_selector": {"role": "p"}, "decode_selector": ["role=d"]}
    with Router(vllm_pd_disaggregation=True).serve(
        service_discovery=True, selector={"app": "vllm"}, bootstrap_port_annotation="own/port", **selectors
    ):
        pass
    assert made == [KubernetesOptions(bootstrap_port_annotation="own/port", **selectors)]
    with pytest.raises(ValueError, match="neither of prefill_selector and decode_selector is set"):
        Router(vllm_pd_disaggregation=True).serve(service_discovery=True, selector={"app": "vllm"})


def test_a_fleet_of_two_stages_is_found_by_labels(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    with (
        SimulatedWorker(stage="prefill") as p,
        SimulatedWorker(stage="decode") as d,
        FakeKubernetes() as cluster,
    ):
        workers = {"p": (p, "prefill"), "d": (d, "decode")}

        def put(name: str, **labels: str) -> None:
            port = urlsplit(workers[name][0].url).port or 0
            labels = {"app": "vllm", "role": workers[name][1], **labels}
            cluster.put(
                pod(
                    name,
                    "127.0.0.1",
                    labels=labels,
                    annotations={"vllm.ai/bootstrap-port": "8999"},
                    ports={"http": port},
                )
            )

        put("p")
        put("d")
        router = Router(vllm_pd_disaggregation=True, policy="round_robin")
        with router.serve(
            service_discovery=True,
            prefill_selector={"app": "vllm", "role": "prefill"},
            decode_selector=["app=vllm", "role in (decode, both)", "!gone"],
            service_discovery_port="http",
            kubeconfig=cluster.kubeconfig(tmp_path),
        ) as server:
            eventually(lambda: ready(server.url)[0] == 200)
            rows = json.loads(asked(server.url, "GET", "/workers")[1])["workers"]
            found = {row["url"]: (row["worker_type"], row.get("bootstrap_port")) for row in rows}
            assert found == {p.url: ("prefill", 8999), d.url: ("decode", None)}
            # A worker that changes its labels is a worker of the other stage.
            put("d", role="prefill")
            eventually(
                lambda: (
                    {one.url: one.worker_type for one in router.workers}
                    == {p.url: "prefill", d.url: "prefill"}
                )
            )
            assert ready(server.url)[0] == 503
            put("d")
            eventually(lambda: ready(server.url)[0] == 200)
            put("d", gone="yes")
            eventually(lambda: [one.url for one in router.workers] == [p.url])


def test_pods_are_served_that_the_flags_select(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    with SimulatedWorker() as worker, FakeKubernetes() as cluster:
        port = urlsplit(worker.url).port
        cluster.put(pod("vllm-0", "127.0.0.1", namespace="models", ports={"http": port or 0}))
        cluster.put(pod("other", "127.0.0.9", namespace="models", labels={"app": "other"}))
        router = Router()
        with router.serve(
            service_discovery=True,
            selector=["app in (vllm)", "!old"],
            service_discovery_port="http",
            service_discovery_namespace="models",
            kubeconfig=cluster.kubeconfig(tmp_path),
        ) as server:
            eventually(lambda: router.worker_urls == [f"http://127.0.0.1:{port}"])
            eventually(lambda: ready(server.url)[0] == 200)  # one more check has passed


def test_the_command_waits_for_an_api_server_that_is_down(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    with FakeKubernetes() as cluster:
        config = cluster.kubeconfig(tmp_path)
    flags = ["--service-discovery", "--selector", "app=vllm", "--kubeconfig", config]
    with command(*flags, "--worker-startup-timeout-secs=0.2") as (process, url, _):
        eventually(lambda: "waiting for kubernetes: pods in all namespaces" in ready(url)[1])
        assert ready(url)[0] == 503
        assert process.poll() is None
        process.terminate()
        assert process.wait(30) == 0


def test_sources_are_settings_of_the_server() -> None:
    router = Router(worker_file="workers.yaml", discovery_guard=0.25, discovery_hold_secs=5)
    assert router._args.server_options()["worker_file"] == "workers.yaml"
    with pytest.raises(TypeError, match=r"discovery_guard is not an option of serve\(\) but of Router"):
        router.serve(discovery_guard=0.1)
    with pytest.raises(ValueError, match=r"dns_max_secs is 0\.5; it is the maximum time"):
        Router(dns_max_secs=0.5)


@contextlib.contextmanager
def command(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A router, its URL, and what it has said before it served."""
    arguments = [sys.executable, "-m", "vllm_router.launch_router", "--port=0", "--prometheus-port=0", *flags]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if " serves http://" in line:
                    break
            yield process, said[-1].split(" serves ")[1].split(": ")[0], said
        finally:
            process.kill()


def test_the_command_waits_for_its_sources_longer_than_for_its_workers(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    with RefusingPort() as refusing, SimulatedWorker() as worker:
        limit = ("--worker-urls", refusing.url, "--worker-startup-timeout-secs", "0.2")
        with command(*limit, "--worker-file", str(path)) as (process, url, said):
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)  # five times the limit
            path.write_text(f"workers: [{worker.url}]\n")
            eventually(lambda: ready(url)[0] == 200)
            process.terminate()
            assert process.wait(30) == 0
            assert process.stderr is not None
            said += process.stderr
    assert "".join(said).count(f" ERROR source file: {path} cannot be read: No such file or directory\n") == 1
    assert any(line.endswith(" INFO source file: lists its workers again\n") for line in said)


def test_a_worker_leaves_with_its_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "workers.yaml"
    path.write_text("workers: [http://a:1, http://b:1]\n")
    router = Router()
    with router.follow(FileSource(path, poll_secs=0.01)) as follower:
        assert follower.first(30)
        assert router.worker_urls == ["http://a:1", "http://b:1"]
        path.write_text("workers: [http://b:1]\n")
        eventually(lambda: router.worker_urls == ["http://b:1"])
        path.write_text("workers: []\n")
        eventually(lambda: router.adopt("file") == ["http://b:1"])
        assert router.worker_urls == []
