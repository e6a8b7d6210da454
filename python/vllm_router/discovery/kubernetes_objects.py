"""Pods and EndpointSlices as workers: the pure part of Kubernetes discovery.

    options = KubernetesOptions(selector={"app": "vllm"}, ports=[8000], namespaces=["models"])
    pods_to_specs(pods, options)         [WorkerSpec("http://10.0.3.7:8000", ...), ...]
    slices_to_specs(slices, options)     the same of EndpointSlices, with `service` in the options

Objects are JSON as the API server sends it, or what `trimmed_json()` has kept of it. One that has a mistake
in an annotation is a worker with the default instead, and a warning names the object, the annotation and the
value.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_router._messages import show
from vllm_router.discovery.kubernetes_options import KubernetesOptions
from vllm_router.discovery.source import (
    MAX_KV_GROUP_BYTES,
    MAX_MODELS,
    MAX_SECS,
    WorkerSpec,
    may_be_kv_group,
    may_be_model,
    misfit_of,
)

__all__ = ["pods_to_specs", "slices_to_specs"]

logger = logging.getLogger("vllm_router.discovery")
Warn = Callable[[str], None]
Object = Mapping[str, Any]

WORKER_PORTS = ("vllm.ai/worker-ports", "smg.ai/worker-ports")  # the first that is there
WEIGHT = "vllm.ai/weight"
DATA_PARALLEL_SIZE = "vllm.ai/data-parallel-size"
SCHEME = "vllm.ai/scheme"
MODELS = "vllm.ai/models"
KV_GROUP = "vllm.ai/kv-group"

MAX_RANKS = (
    64  # of a pod or slice: more is a mistake in an annotation, which would leave no room for the others
)
_KILL_MARGIN_SECS = 5  # requests are cut this long before the kubelet kills the engine
_DEFAULT_GRACE_SECS = 30
_HOST_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.IGNORECASE)


# What is kept of an object

_KEPT = frozenset(
    (
        *("kind", "type", "object", "items", "metadata", "spec", "status"),
        *("name", "namespace", "uid", "resourceVersion", "continue", "annotations"),
        *("deletionTimestamp", "deletionGracePeriodSeconds", "terminationGracePeriodSeconds"),
        *WORKER_PORTS,
        *(WEIGHT, DATA_PARALLEL_SIZE, SCHEME, MODELS, KV_GROUP),
        *("containers", "ports", "containerPort", "port"),
        *("phase", "podIP", "podIPs", "ip", "conditions", "containerStatuses", "restartCount"),
        *("addressType", "endpoints", "addresses", "ready", "serving", "terminating", "targetRef"),
        *("code", "message", "reason"),  # of a Status
    )
)


def trimmed_json(text: bytes | str, more: frozenset[str] = frozenset()) -> Any:
    """JSON without the names that nothing here reads: most of a pod, and gone before the next one is read.

    Args:
        text: What was sent.
        more: Names to keep beside those that are always read: `KubernetesOptions.kept_names`.

    Raises:
        ValueError: it is no JSON.
    """
    kept = _KEPT | more if more else _KEPT

    def kept_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: value for key, value in pairs if key in kept}

    try:
        return json.loads(text, object_pairs_hook=kept_of)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def key_of(thing: Object) -> tuple[str, str]:
    """Namespace and name."""
    metadata = _mapping(thing.get("metadata"))
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


# Specs


class Workers(NamedTuple):
    """The workers of one object, or endpoint."""

    namespace: str
    family: str
    """`ipv4`, `ipv6`, `name`, or empty when it does not matter."""
    specs: tuple[WorkerSpec, ...]
    conflict: str = ""
    """Why it is no worker, although it is selected as one; empty for all others."""


NONE = Workers("", "", ())


def pods_to_specs(
    objects: Iterable[Object], options: KubernetesOptions, warn: Warn | None = None
) -> list[WorkerSpec]:
    """The workers that pods are, by URL. What is wrong with one is told to `warn`; None: the log."""
    warn = warn or logger.warning
    parts = [workers_of_pod(pod, options, warn) for pod in objects]
    for part in parts:
        if part.conflict:
            warn(part.conflict)
    return merged(parts, options)


def slices_to_specs(
    objects: Iterable[Object], options: KubernetesOptions, warn: Warn | None = None
) -> list[WorkerSpec]:
    """The workers that EndpointSlices list, by URL. What is wrong is told to `warn`; None: the log."""
    return merged((workers_of_slice(piece, options, warn or logger.warning) for piece in objects), options)


def merged(parts: Iterable[Workers], options: KubernetesOptions) -> list[WorkerSpec]:
    """Each URL once, and one address family for each namespace, by URL."""
    parts = [part for part in parts if part.specs]
    ranks = (options.family, "ipv4", "ipv6", "name")
    best: dict[str, int] = {}
    for part in parts:
        if part.family:
            rank = ranks.index(part.family)
            best[part.namespace] = min(rank, best.get(part.namespace, rank))
    chosen: dict[str, WorkerSpec] = {}
    for part in parts:
        if part.family and ranks.index(part.family) != best[part.namespace]:
            continue
        for spec in part.specs:
            other = chosen.get(spec.url)
            # An address may have gone from a pod that ends to one that begins.
            if other is None or _preference(spec) < _preference(other):
                chosen[spec.url] = spec
    return [chosen[url] for url in sorted(chosen)]


def _preference(spec: WorkerSpec) -> tuple[bool, bool, str, str]:
    return spec.leaving, not spec.ready, spec.detail, spec.incarnation


def workers_of_pod(pod: Object, options: KubernetesOptions, warn: Warn) -> Workers:
    """What one pod is: none while it has no address, and once it has ended.

    Raises nothing: a pod that cannot be read is left out with a warning, and the others go on.
    """
    return _unless_odd("pod", _of_pod, pod, options, warn)


def workers_of_slice(piece: Object, options: KubernetesOptions, warn: Warn) -> Workers:
    """What the endpoints of one slice are. Raises nothing, as `workers_of_pod()`."""
    return _unless_odd("EndpointSlice", _of_slice, piece, options, warn)


def _unless_odd(
    kind: str,
    convert: Callable[[Object, str, KubernetesOptions, Warn], Workers],
    thing: Object,
    options: KubernetesOptions,
    warn: Warn,
) -> Workers:
    """The workers of one object, without those that the core would reject the list of all objects for."""
    where = "{} {}/{}".format(kind, *key_of(thing)).encode("utf-8", "replace").decode()
    try:
        found = convert(thing, where, options, warn)
    except Exception as error:  # whatever stands in one object, the others are workers
        warn(f"{where}: {type(error).__name__}: {error!s:.200}; it is left out")
        return NONE
    fit = []
    for spec in found.specs:
        misfit = misfit_of(spec)
        if misfit:
            warn(f"{where}: its worker {spec.url} {misfit}; it is left out")
        else:
            fit.append(spec)
    return found if len(fit) == len(found.specs) else found._replace(specs=tuple(fit))


def _of_pod(pod: Object, where: str, options: KubernetesOptions, warn: Warn) -> Workers:
    metadata, spec, status = (_mapping(pod.get(name)) for name in ("metadata", "spec", "status"))
    if status.get("phase") not in ("Running", "Unknown"):  # Unknown: its node does not report
        return NONE
    host = _pod_address(status, options.family, where, warn)
    if not host:
        return NONE
    is_ready = any(
        item.get("type") == "Ready" and item.get("status") == "True"
        for item in _mappings(status.get("conditions"))
    )
    leaving = bool(metadata.get("deletionTimestamp"))
    grace = metadata.get("deletionGracePeriodSeconds")
    if not isinstance(grace, int):
        grace = spec.get("terminationGracePeriodSeconds")
    if not isinstance(grace, int):
        grace = _DEFAULT_GRACE_SECS
    drain_secs = min(max(0, grace - _KILL_MARGIN_SECS), MAX_SECS)  # the API server takes any number
    stage, conflict = _stage_of(metadata, where, options)
    if not stage:
        return Workers("", "", (), conflict)
    notes = _Annotations(metadata, where, warn)
    if not may_be_kv_group(notes.kv_group):  # without one it would pair with all
        return Workers(
            "",
            "",
            (),
            f"{where}: annotation {KV_GROUP} is {show(notes.kv_group)}, so it is no worker; it must have at "
            f"most {MAX_KV_GROUP_BYTES} bytes and no control characters",
        )
    containers = _mappings(spec.get("containers"))
    specs = tuple(
        WorkerSpec(
            f"{notes.scheme}://{host}:{number}",
            weight=notes.weight,
            ready=is_ready,
            leaving=leaving,
            drain_secs=float(drain_secs) if leaving else None,
            incarnation=f"{metadata.get('uid', '')}/{_restarts(status, container)}",
            data_parallel_size=notes.data_parallel_size,
            worker_type=stage,
            bootstrap_port=(
                notes.bootstrap_port(options.bootstrap_port_annotation) if stage == "prefill" else None
            ),
            kv_group="" if stage == "regular" else notes.kv_group,
            models=notes.models,
            labels={"pod": "/".join(key_of(pod))},
        )
        for number, container in _pod_ports(containers, notes.ports or options.port_list, where, warn).items()
    )
    return Workers("", "", specs)


def _stage_of(metadata: Mapping[str, Any], where: str, options: KubernetesOptions) -> tuple[str, str]:
    """The worker type of a pod, and why it has none; both empty: no selector matches it."""
    if not options.stages:
        return "regular", ""
    labels = _mapping(metadata.get("labels"))
    matching = [stage for stage, selector in options.stages.items() if selector.matches(labels)]
    if len(matching) > 1:
        return "", (
            f"{where} matches both prefill_selector and decode_selector, so it is no worker; a worker has "
            "one stage: change its labels or one of the selectors"
        )
    return (matching[0] if matching else ""), ""


def _pod_address(status: Mapping[str, Any], family: str, where: str, warn: Warn) -> str:
    """The address of the wanted family, else the first; in brackets if it is IPv6."""
    texts = [status.get("podIP"), *(item.get("ip") for item in _mappings(status.get("podIPs")))]
    hosts: dict[str, str] = {}
    for text in texts:
        if not text:
            continue
        host, its_family = _host(text)
        if host:
            hosts.setdefault(its_family, host)
        else:
            warn(f"{where}: its address is {show(text)}, which is no IP address; it is left out")
    return hosts.get(family) or next(iter(hosts.values()), "")


def _host(text: object) -> tuple[str, str]:
    try:
        address = ipaddress.ip_address(text if isinstance(text, str) else "")
    except ValueError:
        return "", ""
    if address.version == 6:
        return ("", "") if "%" in str(address) else (f"[{address}]", "ipv6")
    return str(address), "ipv4"


def _pod_ports(
    containers: list[Mapping[str, Any]], ports: Iterable[int | str], where: str, warn: Warn
) -> dict[int, str]:
    """Numbers of ports, each with the name of the container that has it."""
    # A container need not declare its ports. The first is the engine then: sidecars are added behind it.
    first = str(containers[0].get("name", "")) if containers else ""
    found: dict[int, str] = {}
    for port in ports:
        wanted = "containerPort" if isinstance(port, int) else "name"
        for container in containers:
            match = next(
                (item for item in _mappings(container.get("ports")) if item.get(wanted) == port), None
            )
            if match is not None and isinstance(match.get("containerPort"), int):
                found.setdefault(match["containerPort"], str(container.get("name", "")))
                break
        else:
            if isinstance(port, int):
                found.setdefault(port, first)
            else:
                names = [
                    item["name"]
                    for one in containers
                    for item in _mappings(one.get("ports"))
                    if item.get("name")
                ]
                warn(f"{where}: no container has a port with the name {port}; {_there(names)}")
    return found


def _there(names: Sequence[object]) -> str:
    return f"there are {', '.join(map(str, names[:10]))}" if names else "none of its ports has a name"


def _restarts(status: Mapping[str, Any], container: str) -> int:
    for item in _mappings(status.get("containerStatuses")):
        if item.get("name") == container and isinstance(item.get("restartCount"), int):
            return int(item["restartCount"])
    return 0


def _of_slice(piece: Object, where: str, options: KubernetesOptions, warn: Warn) -> Workers:
    namespace, name = key_of(piece)
    family = {"IPv4": "ipv4", "IPv6": "ipv6", "FQDN": "name"}.get(str(piece.get("addressType")), "")
    if not family:
        warn(f"{where}: its addressType is {show(piece.get('addressType'))}; it must be IPv4, IPv6 or FQDN")
        return NONE
    notes = _Annotations(_mapping(piece.get("metadata")), where, warn)
    numbers = _slice_ports(_mappings(piece.get("ports")), notes.ports or options.port_list, where, warn)
    specs = []
    for endpoint in _mappings(piece.get("endpoints")):
        addresses = endpoint.get("addresses")
        text = addresses[0] if isinstance(addresses, list) and addresses else None
        if family == "name":
            host = text if isinstance(text, str) and _HOST_NAME.fullmatch(text) else ""
        else:
            host, its_family = _host(text)
            host = host if its_family == family else ""
        if not host:
            warn(f"{where}: an endpoint has the address {show(text)}, which is no {family}; it is left out")
            continue
        # A condition that is not there is as it is for a worker at work.
        conditions = _mapping(endpoint.get("conditions"))
        target = _mapping(endpoint.get("targetRef"))
        is_pod = target.get("kind") == "Pod" and target.get("name")
        pod = f"{target.get('namespace') or namespace}/{target['name']}" if is_pod else ""
        specs += [
            WorkerSpec(
                f"{notes.scheme}://{host}:{number}",
                weight=notes.weight,
                ready=conditions.get("ready") is not False and conditions.get("serving") is not False,
                leaving=conditions.get("terminating") is True,
                incarnation=str(target.get("uid") or ""),
                data_parallel_size=notes.data_parallel_size,
                models=notes.models,
                labels={"pod": pod} if pod else {"slice": f"{namespace}/{name}"},
            )
            for number in numbers
        ]
    return Workers(namespace, family, tuple(specs))


def _slice_ports(
    declared: list[Mapping[str, Any]], ports: Iterable[int | str], where: str, warn: Warn
) -> list[int]:
    """Numbers of ports. A slice without ports, or with one that has no number, leaves the choice to us."""
    numbers: dict[int, None] = {}
    any_number = not declared or any(item.get("port") is None for item in declared)
    for port in ports:
        wanted = "port" if isinstance(port, int) else "name"
        found = [
            item["port"]
            for item in declared
            if item.get(wanted) == port and isinstance(item.get("port"), int)
        ]
        if not found and any_number and isinstance(port, int):
            found = [port]
        if not found:
            there = [f"{item.get('port')} ({item.get('name') or 'no name'})" for item in declared]
            warn(f"{where}: it has no port {port}; there are {', '.join(there[:10]) or 'none'}")
        numbers.update(dict.fromkeys(found))
    return list(numbers)


class _Annotations:
    """The annotations of an object, each with its default."""

    def __init__(self, metadata: Mapping[str, Any], where: str, warn: Warn) -> None:
        self._values = _mapping(metadata.get("annotations"))
        self._where = where
        self._warn = warn
        self.ports = self._of(
            next((name for name in WORKER_PORTS if name in self._values), WORKER_PORTS[0]),
            lambda text: tuple(dict.fromkeys(_whole_number(word, 65535) for word in text.split(","))),
            (),
            "port numbers such as 8000,8001",
        )
        self.weight = self._of(WEIGHT, _weight, 1.0, "a number between 0.01 and 100")
        self.data_parallel_size = self._of(
            DATA_PARALLEL_SIZE,
            lambda text: _whole_number(text, MAX_RANKS),
            None,
            f"a number between 1 and {MAX_RANKS}",
        )
        self.kv_group: str = self._of(KV_GROUP, str.strip, "", "a text")
        self.scheme = self._of(SCHEME, _scheme, "http", "http or https")
        self.models = self._of(
            MODELS,
            _models,
            (),
            f"up to {MAX_MODELS} names of models such as org/a,org/b, each of 1 to 256 bytes without control "
            "characters",
        )

    def bootstrap_port(self, name: str) -> int | None:
        """Of the annotation of this name; None: the router's."""
        port: int | None = self._of(
            name, lambda text: _whole_number(text, 65535), None, "a port between 1 and 65535"
        )
        return port

    def _of(self, name: str, parse: Callable[[str], Any], default: Any, what: str) -> Any:
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return parse(text)
        except (ValueError, AttributeError, TypeError):
            self._warn(
                f"{self._where}: annotation {name} is {show(text)}; it must be {what}; the default is "
                "taken instead"
            )
            return default


def _whole_number(text: str, highest: int) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", text):
        raise ValueError
    number = int(text)
    if not 1 <= number <= highest:
        raise ValueError
    return number


def _weight(text: str) -> float:
    if "_" in text:  # float() takes 1_0
        raise ValueError
    number = float(text)
    if not math.isfinite(number) or not 0.01 <= number <= 100:
        raise ValueError
    return number


def _models(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if len(names) > MAX_MODELS or not all(map(may_be_model, names)):
        raise ValueError
    return names


def _scheme(text: str) -> str:
    if text.strip().lower() not in ("http", "https"):
        raise ValueError
    return text.strip().lower()
