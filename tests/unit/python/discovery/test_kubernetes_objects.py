"""Pods and EndpointSlices as workers: one row for each state that they can be in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.kubernetes import endpoint, endpoint_slice, pod
from tests.rows import for_each_row
from vllm_router.discovery import WorkerSpec
from vllm_router.discovery.kubernetes import KubernetesOptions, pods_to_specs, slices_to_specs
from vllm_router.discovery.kubernetes_objects import trimmed_json

POD = KubernetesOptions("app=vllm", ports=8000)
NAMED = KubernetesOptions("app=vllm", ports=["http"])
SERVICE = KubernetesOptions(service="vllm", ports=8000)
NAMED_SERVICE = KubernetesOptions(service="vllm", ports=["http"])
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture(autouse=True)
def _no_family_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def spec(url: str = "http://10.0.0.1:8000", **more: Any) -> WorkerSpec:
    more.setdefault("incarnation", "uid-of-a/0")
    more.setdefault("labels", {"pod": "default/a"})
    return WorkerSpec(url, **more)


def containers(*rows: tuple[str, dict[str, int], int]) -> dict[str, Any]:
    """A pod of several containers: name, ports, restarts."""
    made = pod("a", "10.0.0.1")
    made["spec"]["containers"] = [
        {"name": name, "ports": [{"name": key, "containerPort": port} for key, port in ports.items()]}
        for name, ports, _ in rows
    ]
    # The kubelet sorts them by name, whatever the order in the spec is.
    made["status"]["containerStatuses"] = [
        {"name": name, "restartCount": restarts} for name, _, restarts in sorted(rows, key=lambda row: row[0])
    ]
    return made


def changed(made: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    """With a value at `status.podIP` or the like; None: without."""
    *path, last = where.split(".")
    place = made
    for name in path:
        place = place[name]
    if value is None:
        place.pop(last, None)
    else:
        place[last] = value
    return made


def note(**annotations: str) -> dict[str, Any]:
    return pod(
        "a", "10.0.0.1", annotations={f"vllm.ai/{k.replace('_', '-')}": v for k, v in annotations.items()}
    )


GATE = [
    {"type": "ContainersReady", "status": "True"},
    {"type": "example.com/warm", "status": "False"},
    {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
]

PODS = {
    "running and ready": (pod("a", "10.0.0.1"), POD, [spec()]),
    "not ready": (pod("a", "10.0.0.1", ready=False), POD, [spec(ready=False)]),
    "a readiness gate that has failed": (
        changed(pod("a", "10.0.0.1"), "status.conditions", GATE),
        POD,
        [spec(ready=False)],
    ),
    "readiness unknown, since the node is away": (
        changed(pod("a", "10.0.0.1"), "status.conditions", [{"type": "Ready", "status": "Unknown"}]),
        POD,
        [spec(ready=False)],
    ),
    "no conditions yet": (changed(pod("a", "10.0.0.1"), "status.conditions", None), POD, [spec(ready=False)]),
    "phase unknown": (pod("a", "10.0.0.1", phase="Unknown", ready=False), POD, [spec(ready=False)]),
    "deleted: five seconds before it is killed": (
        pod("a", "10.0.0.1", **DELETED),
        POD,
        [spec(leaving=True, drain_secs=55)],
    ),
    "deleted and no longer ready": (
        pod("a", "10.0.0.1", ready=False, **DELETED),
        POD,
        [spec(leaving=True, ready=False, drain_secs=55)],
    ),
    "deleted with another grace period": (
        pod("a", "10.0.0.1", deletionGracePeriodSeconds=20, **DELETED),
        POD,
        [spec(leaving=True, drain_secs=15)],
    ),
    "deleted with a grace period of less than five seconds": (
        pod("a", "10.0.0.1", deletionGracePeriodSeconds=3, **DELETED),
        POD,
        [spec(leaving=True, drain_secs=0)],
    ),
    "deleted, without a grace period": (
        changed(pod("a", "10.0.0.1", **DELETED), "spec.terminationGracePeriodSeconds", None),
        POD,
        [spec(leaving=True, drain_secs=25)],
    ),
    "failed": (pod("a", "10.0.0.1", phase="Failed"), POD, []),
    "succeeded": (pod("a", "10.0.0.1", phase="Succeeded"), POD, []),
    "failed while it was being deleted": (pod("a", "10.0.0.1", phase="Failed", **DELETED), POD, []),
    "evicted: no address any more": (pod("a", None, phase="Failed"), POD, []),
    "pending without an address": (pod("a", None, phase="Pending"), POD, []),
    "pending with an address, while init containers run": (pod("a", "10.0.0.1", phase="Pending"), POD, []),
    "running without an address": (pod("a", None), POD, []),
    "an empty address": (pod("a", ""), POD, []),
    "no status": (changed(pod("a", "10.0.0.1"), "status", None), POD, []),
    "restarted twice": (pod("a", "10.0.0.1", restarts=2), POD, [spec(incarnation="uid-of-a/2")]),
    "another uid": (pod("a", "10.0.0.1", uid="b"), POD, [spec(incarnation="b/0")]),
    "not started: no container has a status": (
        changed(pod("a", "10.0.0.1"), "status.containerStatuses", None),
        POD,
        [spec()],
    ),
    "a sidecar has restarted": (
        containers(("proxy", {"admin": 15000}, 7), ("vllm", {"http": 8000}, 1)),
        POD,
        [spec(incarnation="uid-of-a/1")],
    ),
    "ports undeclared: the first container is meant": (
        containers(("vllm", {}, 1), ("proxy", {}, 7)),
        POD,
        [spec(incarnation="uid-of-a/1")],
    ),
    "a port by name": (pod("a", "10.0.0.1", ports={"http": 9000}), NAMED, [spec("http://10.0.0.1:9000")]),
    "a name in the second container": (
        containers(("proxy", {"admin": 15000}, 7), ("vllm", {"http": 8000}, 1)),
        NAMED,
        [spec(incarnation="uid-of-a/1")],
    ),
    "several ports are several workers": (
        pod("a", "10.0.0.1"),
        KubernetesOptions("app=vllm", ports=[8000, 8001]),
        [spec(), spec("http://10.0.0.1:8001")],
    ),
    "a port by number and by name counts once": (
        pod("a", "10.0.0.1"),
        KubernetesOptions("app=vllm", ports=["http", 8000]),
        [spec()],
    ),
    "ports of two containers, each with its restarts": (
        containers(("one", {"http": 8000}, 1), ("two", {"more": 8001}, 2)),
        KubernetesOptions("app=vllm", ports=["http", "more"]),
        [spec(incarnation="uid-of-a/1"), spec("http://10.0.0.1:8001", incarnation="uid-of-a/2")],
    ),
    "port 80 unless said otherwise": (
        pod("a", "10.0.0.1"),
        KubernetesOptions("app=vllm"),
        [spec("http://10.0.0.1:80")],
    ),
    "IPv6": (pod("a", "fd00::1"), POD, [spec("http://[fd00::1]:8000")]),
    "both families: IPv4 outside of a cluster": (
        changed(pod("a", "fd00::1"), "status.podIPs", [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]),
        POD,
        [spec()],
    ),
    "both families: the one that is asked for": (
        changed(pod("a", "10.0.0.1"), "status.podIPs", [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]),
        KubernetesOptions("app=vllm", ports=8000, ip_family="ipv6"),
        [spec("http://[fd00::1]:8000")],
    ),
    "annotation: ports instead of those of the options": (
        note(worker_ports="9000, 9001"),
        POD,
        [spec("http://10.0.0.1:9000"), spec("http://10.0.0.1:9001")],
    ),
    "annotation: ports under the other name": (
        pod("a", "10.0.0.1", annotations={"smg.ai/worker-ports": "9000"}),
        POD,
        [spec("http://10.0.0.1:9000")],
    ),
    "annotation: ports under both names": (
        pod("a", "10.0.0.1", annotations={"smg.ai/worker-ports": "9000", "vllm.ai/worker-ports": "9001"}),
        POD,
        [spec("http://10.0.0.1:9001")],
    ),
    "annotation: weight": (note(weight="2.5"), POD, [spec(weight=2.5)]),
    "annotation: data parallel size": (note(data_parallel_size="8"), POD, [spec(data_parallel_size=8)]),
    "annotation: scheme": (note(scheme="HTTPS"), POD, [spec("https://10.0.0.1:8000")]),
    "annotation: models": (
        note(models="org/a, org/b,org/a"),
        POD,
        [spec(models=("org/a", "org/b"))],
    ),
    "annotation of others": (note(other="x"), POD, [spec()]),
    "another namespace": (
        pod("a", "10.0.0.1", namespace="models"),
        POD,
        [spec(labels={"pod": "models/a"})],
    ),
}


@for_each_row("row", PODS.values(), ids=PODS)
def test_a_pod_is(row: tuple[dict[str, Any], KubernetesOptions, list[WorkerSpec]]) -> None:
    made, options, expected = row
    warnings: list[str] = []
    assert pods_to_specs([made], options, warnings.append) == expected
    assert warnings == []
    assert pods_to_specs([trimmed_json(json.dumps(made))], options, warnings.append) == expected


STAGED = KubernetesOptions(
    ports=8000,
    prefill_selector={"app": "vllm", "role": "prefill"},
    decode_selector=["app=vllm", "role!=prefill"],
)


def staged(role: str | None, **annotations: str) -> dict[str, Any]:
    labels = {"app": "vllm"} if role is None else {"app": "vllm", "role": role}
    return pod("a", "10.0.0.1", labels=labels, annotations=annotations)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (staged("prefill"), [spec(worker_type="prefill")]),
        (
            staged("prefill", **{"vllm.ai/bootstrap-port": " 8999"}),
            [spec(worker_type="prefill", bootstrap_port=8999)],
        ),
        (
            staged("prefill", **{"vllm.ai/worker-ports": "1,2", "vllm.ai/bootstrap-port": "3"}),
            [spec(f"http://10.0.0.1:{port}", worker_type="prefill", bootstrap_port=3) for port in (1, 2)],
        ),
        (staged("decode", **{"vllm.ai/bootstrap-port": "8999"}), [spec(worker_type="decode")]),
        (staged("decode", **{"vllm.ai/kv-group": " a/16 "}), [spec(worker_type="decode", kv_group="a/16")]),
        (staged(None), [spec(worker_type="decode")]),
        (pod("a", "10.0.0.1", labels={"app": "other", "role": "prefill"}), []),
        (changed(staged("prefill"), "metadata.labels", None), []),
        (changed(staged("prefill"), "metadata.labels", ["app"]), []),
    ],
)
def test_labels_say_the_stage_of_a_pod(made: dict[str, Any], expected: list[WorkerSpec]) -> None:
    warnings: list[str] = []
    assert pods_to_specs([made], STAGED, warnings.append) == expected
    trimmed = trimmed_json(json.dumps(made), STAGED.kept_names)
    assert pods_to_specs([trimmed], STAGED, warnings.append) == expected
    assert warnings == []


@pytest.mark.parametrize("group", ["g" * 129, "a\nb", "é" * 65])
def test_a_pod_whose_group_does_not_fit_is_no_worker(group: str) -> None:
    warnings: list[str] = []
    assert pods_to_specs([staged("prefill", **{"vllm.ai/kv-group": group})], STAGED, warnings.append) == []
    assert "annotation vllm.ai/kv-group is" in warnings[0]
    assert "must have at most 128 bytes and no control characters" in warnings[0]


def test_a_pod_without_a_stage_has_no_group() -> None:
    made = pod("a", "10.0.0.1", annotations={"vllm.ai/kv-group": "a"})
    assert pods_to_specs([made], KubernetesOptions(selector="app=vllm", ports=8000), print)[0].kv_group == ""


@pytest.mark.parametrize("port", ["0", "65536", "none", "", "8998,8999"])
def test_a_bootstrap_port_that_is_none_is_the_routers(port: str) -> None:
    warnings: list[str] = []
    found = pods_to_specs([staged("prefill", **{"vllm.ai/bootstrap-port": port})], STAGED, warnings.append)
    assert found == [spec(worker_type="prefill")]
    assert "annotation vllm.ai/bootstrap-port is" in warnings[0]


def test_another_annotation_may_name_the_bootstrap_port() -> None:
    options = KubernetesOptions(ports=8000, prefill_selector="app=vllm", bootstrap_port_annotation="own/port")
    made = json.dumps(staged(None, **{"own/port": "7000", "vllm.ai/bootstrap-port": "8999"}))
    found = pods_to_specs([trimmed_json(made, options.kept_names)], options)
    assert found == [spec(worker_type="prefill", bootstrap_port=7000)]


def test_a_pod_of_both_stages_is_no_worker_and_the_others_are() -> None:
    options = KubernetesOptions(ports=8000, prefill_selector="app=vllm", decode_selector="role=decode")
    other = pod("b", "10.0.0.2")
    warnings: list[str] = []
    found = pods_to_specs([staged("decode"), other], options, warnings.append)
    assert [(one.url, one.worker_type) for one in found] == [("http://10.0.0.2:8000", "prefill")]
    assert warnings == [
        "pod default/a matches both prefill_selector and decode_selector, so it is no worker; a worker has "
        "one stage: change its labels or one of the selectors"
    ]


def test_selectors_of_stages_are_listed_by_what_they_have_in_common() -> None:
    assert KubernetesOptions("app=vllm").kept_names == frozenset()
    assert STAGED.label_selector == "app in (vllm)"
    assert STAGED.kept_names == {"labels", "app", "role", "vllm.ai/bootstrap-port"}
    alone = KubernetesOptions(decode_selector=["role=decode", "!old"])
    assert alone.label_selector == "!old,role in (decode)"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"selector": "app=vllm", "decode_selector": "a=b"},
            "selector is set beside prefill_selector or dec",
        ),
        (
            {"service": "vllm", "prefill_selector": "a=b"},
            "service is set beside prefill_selector or decode_se",
        ),
        (
            {"prefill_selector": "a=b=c"},
            "prefill_selector or decode_selector has a mistake: a=b=c is no term",
        ),
        ({"decode_selector": ["a=b", "!a"]}, "!a contradicts another term of a"),
        ({"prefill_selector": "a=b", "bootstrap_port_annotation": ""}, "bootstrap_port_annotation is"),
    ],
)
def test_selectors_of_stages_that_cannot_be_used(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        KubernetesOptions(**options)


BAD_PODS = {
    "worker-ports: a word": (note(worker_ports="http"), [spec()], "vllm.ai/worker-ports is http"),
    "worker-ports: out of range": (note(worker_ports="8000,70000"), [spec()], "is 8000,70000"),
    "worker-ports: empty": (note(worker_ports=""), [spec()], "vllm.ai/worker-ports is"),
    "weight: a word": (note(weight="heavy"), [spec()], "vllm.ai/weight is heavy"),
    "weight: with an underscore": (note(weight="1_0"), [spec()], "vllm.ai/weight is 1_0"),
    "weight: zero": (note(weight="0"), [spec()], "between 0.01 and 100"),
    "weight: nan": (note(weight="nan"), [spec()], "vllm.ai/weight is nan"),
    "data-parallel-size: too many": (
        note(data_parallel_size="65"),
        [spec()],
        "is 65; it must be a number between 1 and 64",
    ),
    "data-parallel-size: a whole fleet": (note(data_parallel_size="4096"), [spec()], "between 1 and 64"),
    "data-parallel-size: a fraction": (note(data_parallel_size="1.5"), [spec()], "is 1.5"),
    "models: empty": (note(models=""), [spec()], "vllm.ai/models is"),
    "models: an empty name": (note(models="a,,b"), [spec()], "is a,,b; it must be up to 1024 names"),
    "models: a control character": (note(models="a\x1b"), [spec()], "vllm.ai/models is"),
    "models: too many": (
        note(models=",".join(map(str, range(1025)))),
        [spec()],
        "vllm.ai/models is",
    ),
    "scheme: unknown": (note(scheme="grpc"), [spec()], "vllm.ai/scheme is grpc"),
    "no address": (pod("a", "10.0.0.256"), [], "10.0.0.256"),
}


@for_each_row("row", BAD_PODS.values(), ids=BAD_PODS)
def test_a_bad_value_is_named_and_the_default_is_taken(
    row: tuple[dict[str, Any], list[WorkerSpec], str],
) -> None:
    made, expected, said = row
    warnings: list[str] = []
    assert pods_to_specs([made], POD, warnings.append) == expected
    assert len(set(warnings)) == 1
    assert "pod default/a" in warnings[0]
    assert said in warnings[0]


def test_a_port_that_no_container_names_is_said_with_those_there_are() -> None:
    warnings: list[str] = []
    assert pods_to_specs([pod("a", "10.0.0.1", ports={"api": 1, "zmq": 2})], NAMED, warnings.append) == []
    assert warnings == ["pod default/a: no container has a port with the name http; there are api, zmq"]


def test_without_a_listener_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    pods_to_specs([note(weight="heavy")], POD)
    assert "vllm.ai/weight is heavy" in caplog.text


def test_an_address_belongs_to_the_pod_that_begins_not_to_the_one_that_ends() -> None:
    old = pod("a", "10.0.0.1", **DELETED)
    new = pod("b", "10.0.0.1", ready=False)
    for pods in ([old, new], [new, old]):
        assert [one.incarnation for one in pods_to_specs(pods, POD)] == ["uid-of-b/0"]


def test_workers_are_listed_by_url_and_not_by_arrival() -> None:
    pods = [pod(name, ip) for name, ip in (("a", "10.0.0.3"), ("b", "10.0.0.1"), ("c", "10.0.0.2"))]
    urls = [one.url for one in pods_to_specs(pods, POD)]
    assert urls == [one.url for one in pods_to_specs(pods[::-1], POD)] == sorted(urls)


@pytest.mark.parametrize(("name", "address"), [("POD_IP", "fd00::9"), ("KUBERNETES_SERVICE_HOST", "fd00::1")])
def test_the_family_is_that_of_the_routers_own_pod(
    name: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, address)
    assert KubernetesOptions("app=vllm").family == "ipv6"


# EndpointSlices


def of_slice(url: str = "http://10.0.0.1:8000", **more: Any) -> WorkerSpec:
    return spec(url, **{"incarnation": "uid-of-a", **more})


BARE = {"incarnation": "", "labels": {"slice": "default/s"}}
READY = endpoint("10.0.0.1", "a", ready=True, serving=True, terminating=False)

SLICES = {
    "ready": ([endpoint_slice("s", READY)], SERVICE, [of_slice()]),
    "no conditions: as at work": ([endpoint_slice("s", endpoint("10.0.0.1", "a"))], SERVICE, [of_slice()]),
    "not ready": (
        [endpoint_slice("s", endpoint("10.0.0.1", "a", ready=False, serving=False, terminating=False))],
        SERVICE,
        [of_slice(ready=False)],
    ),
    "published though it does not serve": (
        [endpoint_slice("s", endpoint("10.0.0.1", "a", ready=True, serving=False))],
        SERVICE,
        [of_slice(ready=False)],
    ),
    "terminating": (
        [endpoint_slice("s", endpoint("10.0.0.1", "a", ready=False, serving=True, terminating=True))],
        SERVICE,
        [of_slice(ready=False, leaving=True)],
    ),
    "no pod behind it": ([endpoint_slice("s", endpoint("10.0.0.1"))], SERVICE, [spec(**BARE)]),
    "a port by name": (
        [endpoint_slice("s", READY, ports={"http": 9000, "zmq": 5555})],
        NAMED_SERVICE,
        [of_slice("http://10.0.0.1:9000")],
    ),
    "several ports": (
        [endpoint_slice("s", READY, ports={"a": 8000, "b": 8001, "c": 8002})],
        KubernetesOptions(service="vllm", ports=[8000, "c"]),
        [of_slice(), of_slice("http://10.0.0.1:8002")],
    ),
    "a slice without ports": ([endpoint_slice("s", READY, ports={})], SERVICE, [of_slice()]),
    "a port without a number stands for all": (
        [endpoint_slice("s", READY, ports={"any": None})],
        SERVICE,
        [of_slice()],
    ),
    "no endpoints": ([endpoint_slice("s")], SERVICE, []),
    "endpoints that are null": ([endpoint_slice("s") | {"endpoints": None}], SERVICE, []),
    "the same address in two slices": (
        [endpoint_slice("s", READY), endpoint_slice("t", READY)],
        SERVICE,
        [of_slice()],
    ),
    "the same address, ending in the slice it leaves": (
        [
            endpoint_slice("s", endpoint("10.0.0.1", "a", ready=False, terminating=True)),
            endpoint_slice("t", endpoint("10.0.0.1", "b", ready=True)),
        ],
        SERVICE,
        [of_slice(incarnation="uid-of-b", labels={"pod": "default/b"})],
    ),
    "the same address with two ports": (
        [endpoint_slice("s", READY), endpoint_slice("t", READY, ports={"more": 8001})],
        KubernetesOptions(service="vllm", ports=["http", "more"]),
        None,
    ),
    "both families: one": (
        [
            endpoint_slice("s6", endpoint("fd00::1", "a"), address_type="IPv6"),
            endpoint_slice("s4", endpoint("10.0.0.1", "a")),
        ],
        SERVICE,
        [of_slice()],
    ),
    "both families: the one that is asked for": (
        [
            endpoint_slice("s4", endpoint("10.0.0.1", "a")),
            endpoint_slice("s6", endpoint("fd00::1", "a"), address_type="IPv6"),
        ],
        KubernetesOptions(service="vllm", ports=8000, ip_family="ipv6"),
        [of_slice("http://[fd00::1]:8000")],
    ),
    "only the other family": (
        [endpoint_slice("s6", endpoint("fd00::1", "a"), address_type="IPv6")],
        SERVICE,
        [of_slice("http://[fd00::1]:8000")],
    ),
    "the other family in another namespace": (
        [
            endpoint_slice("s", endpoint("10.0.0.1", "a")),
            endpoint_slice("s", endpoint("fd00::1", "a"), address_type="IPv6", namespace="other"),
        ],
        SERVICE,
        [of_slice(), of_slice("http://[fd00::1]:8000")],
    ),
    "names": (
        [endpoint_slice("s", endpoint("gpu-0.example"), address_type="FQDN")],
        SERVICE,
        [spec("http://gpu-0.example:8000", **BARE)],
    ),
    "annotations": (
        [
            endpoint_slice(
                "s",
                READY,
                annotations={"vllm.ai/weight": "2", "vllm.ai/scheme": "https", "vllm.ai/models": "a"},
            )
        ],
        SERVICE,
        [of_slice("https://10.0.0.1:8000", weight=2, models=("a",))],
    ),
}


@for_each_row("row", SLICES.values(), ids=SLICES)
def test_slices_are(row: tuple[list[dict[str, Any]], KubernetesOptions, list[WorkerSpec] | None]) -> None:
    made, options, expected = row
    warnings: list[str] = []
    found = slices_to_specs(made, options, warnings.append)
    if expected is None:  # each slice lacks one of the ports, which is said
        assert [one.url for one in found] == ["http://10.0.0.1:8000", "http://10.0.0.1:8001"]
        assert len(warnings) == 2
        return
    assert found == expected
    assert warnings == []
    assert slices_to_specs(trimmed_json(json.dumps({"items": made}))["items"], options) == expected


BAD_SLICES = {
    "a port that it does not have": (
        endpoint_slice("s", READY, ports={"http": 9000}),
        "there are 9000 (http)",
    ),
    "a name in a slice of addresses": (endpoint_slice("s", endpoint("gpu-0")), "gpu-0, which is no ipv4"),
    "the other family in a slice": (endpoint_slice("s", endpoint("fd00::1")), "fd00::1, which is no ipv4"),
    "an address with a path": (
        endpoint_slice("s", endpoint("gpu/0"), address_type="FQDN"),
        "gpu/0, which is no name",
    ),
    "no address": (endpoint_slice("s", {"addresses": []}), "the address unset"),
    "another type": (endpoint_slice("s", READY, address_type="Unix"), "Unix; it must be IPv4, IPv6 or FQDN"),
}


@pytest.mark.parametrize("row", BAD_SLICES.values(), ids=BAD_SLICES)
def test_a_bad_slice_is_named(row: tuple[dict[str, Any], str]) -> None:
    made, said = row
    warnings: list[str] = []
    assert slices_to_specs([made], SERVICE, warnings.append) == []
    assert len(warnings) == 1
    assert warnings[0].startswith("EndpointSlice default/s: ")
    assert said in warnings[0]


def test_only_true_is_terminating() -> None:
    odd = endpoint("10.0.0.1", "a", ready=True, serving=True)
    for value in ("true", 1, "yes", None):
        odd["conditions"]["terminating"] = value
        assert [one.leaving for one in slices_to_specs([endpoint_slice("s", odd)], SERVICE)] == [False]


# One odd object beside others


@pytest.mark.parametrize("grace", [100_000_000, 10**400])
def test_a_grace_period_above_a_year_is_a_year(grace: int) -> None:
    ends = changed(pod("a", "10.0.0.1", **DELETED), "spec.terminationGracePeriodSeconds", grace)
    assert [one.drain_secs for one in pods_to_specs([ends], POD)] == [31_536_000]


def test_a_condition_without_a_name_is_none() -> None:
    odd = changed(
        pod("a", "10.0.0.1"), "status.conditions", [{"type": [1]}, {"type": "Ready", "status": "True"}]
    )
    assert [one.ready for one in pods_to_specs([odd], POD)] == [True]


def test_an_object_that_cannot_be_read_is_left_out_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import vllm_router.discovery.kubernetes_objects as module

    def host(text: object) -> tuple[str, str]:
        if text == "10.0.0.1":
            raise RecursionError("deep")
        return str(text), "ipv4"

    monkeypatch.setattr(module, "_host", host)
    warnings: list[str] = []
    good = pods_to_specs([pod("a", "10.0.0.1"), pod("b", "10.0.0.2")], POD, warnings.append)
    assert [one.url for one in good] == ["http://10.0.0.2:8000"]
    slices = [endpoint_slice("s", READY), endpoint_slice("t", endpoint("10.0.0.2", "b"))]
    good = slices_to_specs(slices, SERVICE, warnings.append)
    assert [one.url for one in good] == ["http://10.0.0.2:8000"]
    assert warnings == [
        "pod default/a: RecursionError: deep; it is left out",
        "EndpointSlice default/s: RecursionError: deep; it is left out",
    ]


OFF = "; it is left out"
REJECTED = {
    "a port above 65535": (
        pod("a", "10.0.0.1", ports={"http": 70_000}),
        NAMED,
        "pod default/a: its worker http://10.0.0.1:70000 has a port that is no number between 1 and",
    ),
    "a port that is true": (
        pod("a", "10.0.0.1", ports={"http": True}),
        NAMED,
        f"its worker http://10.0.0.1:True has a port that is no number between 1 and 65535{OFF}",
    ),
    "half a character in its uid": (
        changed(pod("a", "10.0.0.1"), "metadata.uid", "\ud800"),
        POD,
        f"has incarnation with half a character (a lone surrogate), which is no text{OFF}",
    ),
    "half a character in its name": (
        changed(pod("a", "10.0.0.1"), "metadata.name", "a\ud800"),
        POD,
        "pod default/a?: its worker http://10.0.0.1:8000 has labels with half a character",
    ),
    "three numbers": (
        endpoint_slice("s", endpoint("10.0.0"), address_type="FQDN"),
        SERVICE,
        "EndpointSlice default/s: its worker http://10.0.0:8000 has the host 10.0.0, which is not an IPv4",
    ),
    "a name that ends in a number": (
        endpoint_slice("s", endpoint("gpu.5"), address_type="FQDN"),
        SERVICE,
        f"has the host gpu.5, which is not an IPv4 address such as 10.0.0.1{OFF}",
    ),
}


@pytest.mark.parametrize("row", REJECTED.values(), ids=REJECTED)
def test_a_worker_that_the_core_rejects_is_left_out_and_named(
    row: tuple[dict[str, Any], KubernetesOptions, str],
) -> None:
    made, options, said = row
    other = pod("b", "10.0.0.2", ports={"http": 1})
    if options.service:
        other = endpoint_slice("t", endpoint("gpu-1"), address_type="FQDN")
    warnings: list[str] = []
    convert = slices_to_specs if options.service else pods_to_specs
    assert len(convert([made, other], options, warnings.append)) == 1
    assert len(warnings) == 1
    assert said in warnings[0]
    warnings[0].encode()


# Whatever stands there

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["10.0.0.1", "True"])
)
NAMES = st.sampled_from(
    sorted({"metadata", "spec", "status", "items", "name", "ip", "type", "port", "ready"})
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PLACES = st.sampled_from(
    [
        *("metadata", "spec", "status", "metadata.annotations", "spec.containers", "status.podIP"),
        *("status.podIPs", "status.conditions", "status.containerStatuses", "metadata.deletionTimestamp"),
        *("spec.terminationGracePeriodSeconds", "metadata.uid", "metadata.namespace", "status.phase"),
    ]
)


@given(place=PLACES, value=VALUES)
def test_no_pod_is_too_odd(place: str, value: Any) -> None:
    pods_to_specs([changed(pod("a", "10.0.0.1"), place, value)], POD, lambda _: None)


@given(place=st.sampled_from(["endpoints", "ports", "addressType", "metadata"]), value=VALUES)
def test_no_slice_is_too_odd(place: str, value: Any) -> None:
    slices_to_specs([changed(endpoint_slice("s", READY), place, value)], SERVICE, lambda _: None)


@given(
    name=st.sampled_from(["worker-ports", "weight", "data-parallel-size", "scheme", "models"]),
    text=st.text() | st.from_regex(r"[0-9.,eE_ +-]{1,8}", fullmatch=True),
)
def test_any_annotation_gives_workers(name: str, text: str) -> None:
    made = pods_to_specs([pod("a", "10.0.0.1", annotations={f"vllm.ai/{name}": text})], POD, lambda _: None)
    assert made


def test_most_of_an_object_is_not_kept() -> None:
    made = pod("a", "10.0.0.1", managedFields=[{"fieldsV1": {"f:metadata": {}}}])
    made["spec"]["containers"][0] |= {
        "env": [{"name": "HF_TOKEN", "value": "secret"}],
        "args": ["--model", "m"],
    }
    kept = json.dumps(trimmed_json(json.dumps(made)))
    assert "managedFields" not in kept
    assert "secret" not in kept
    assert "--model" not in kept


# Options


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({"app": "vllm", "tier": "gpu"}, "app=vllm,tier=gpu"),
        ("app=vllm", "app=vllm"),
        (["app=vllm", "tier in (a,b)", "!old"], "app=vllm,tier in (a,b),!old"),
    ],
)
def test_a_selector_as_the_api_server_takes_it(selector: Any, text: str) -> None:
    assert KubernetesOptions(selector).label_selector == text


def test_a_service_is_a_label_of_its_slices() -> None:
    assert SERVICE.label_selector == "kubernetes.io/service-name=vllm"
    assert (SERVICE.resource, POD.resource) == ("endpointslices", "pods")


@for_each_row(
    ("options", "said"),
    [
        ({}, "none of selector, service and pool is set"),
        ({"selector": "a=b", "service": "c"}, "selector and service are set"),
        ({"selector": "a=b", "ports": []}, "ports is empty"),
        ({"selector": "a=b", "ports": [0]}, "ports has 0"),
        ({"selector": "a=b", "ports": ["HTTP"]}, "ports has HTTP"),
        ({"selector": "a=b", "ports": [True]}, "ports has true"),
        ({"selector": "a=b", "namespaces": ["a/b"]}, "namespaces has a/b"),
        ({"selector": "a=b", "namespaces": [""]}, "namespaces has"),
        ({"service": "../x"}, "service has ../x"),
        ({"selector": [""]}, "selector has"),
        ({"selector": "a=b", "resync_secs": 0}, "resync_secs is 0"),
        ({"selector": "a=b", "ip_family": "IPv4"}, "ip_family is IPv4"),
        ({"selector": "a=b", "kubeconfig": ""}, "kubeconfig is"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("..", r"\.\.")):
        KubernetesOptions(**options)


@pytest.mark.parametrize(
    "options", [{"selector": 5}, {"selector": {"a": 1}}, {"selector": "a=b", "ports": 1.5}]
)
def test_options_of_another_type(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        KubernetesOptions(**options)


def test_ports_and_namespaces_once_each_and_numbers_as_text() -> None:
    options = KubernetesOptions("a=b", ports=["8000", 8000, "http"], namespaces="models")
    assert options.port_list == (8000, "http")
    assert options.namespace_list == ("models",)
