"""KubernetesOptions: which objects of Kubernetes are workers, and where the API server is."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from vllm_router._messages import show
from vllm_router._secrets import described
from vllm_router.discovery.label_selector import LabelSelector, covering

__all__ = ["KubernetesOptions"]

SERVICE_LABEL = "kubernetes.io/service-name"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class KubernetesOptions:
    """Which pods, or endpoints of a Service, are workers, and where the API server is.

    Raises:
        TypeError: a value of the wrong type.
        ValueError: a value out of its range, or none or several of `selector`, `service`, `pool` and the
            selectors of stages.
    """

    selector: Mapping[str, str] | Sequence[str] | str = ()
    """Labels of the pods: a mapping, or terms as kubectl takes them: `app=vllm`, `tier in (a,b)`, `!old`."""
    ports: Sequence[int | str] | int | str = (80,)
    """Ports of each pod, by number or by the name of a container port; each one is a worker."""
    namespaces: Sequence[str] | str = ()
    """Namespaces to look in; empty: all of them, which takes a ClusterRole."""
    service: str = ""
    """Take the EndpointSlices of the Service of this name, instead of pods."""
    kubeconfig: str | os.PathLike[str] | None = None
    """None: the pod's service account, and outside of a cluster `$KUBECONFIG` or ~/.kube/config."""
    context: str | None = None
    """A context of the kubeconfig; None: its current one."""
    resync_secs: float = 60.0
    """Everything is listed again after this time at most, 1 to 3600 seconds: it heals lost events."""
    ip_family: Literal["", "ipv4", "ipv6"] = ""
    """Which address of pods that have both; empty: the family of the router's own pod."""
    prefill_selector: Mapping[str, str] | Sequence[str] | str = ()
    """Labels of the pods that are prefill workers, in a fleet of two stages; instead of `selector`."""
    decode_selector: Mapping[str, str] | Sequence[str] | str = ()
    """Labels of the pods that are decode workers, likewise. A pod that both match is no worker."""
    bootstrap_port_annotation: str = "vllm.ai/bootstrap-port"
    """The annotation with a prefill pod's bootstrap port."""
    pool: str = ""
    """Take the pods of the InferencePool of this name, in the one namespace: it says labels and ports."""

    def __post_init__(self) -> None:
        """Checks what each value is, and turns lists into tuples."""
        for what in ("selector", "prefill_selector", "decode_selector"):
            object.__setattr__(self, what, _terms(what, getattr(self, what)))
        object.__setattr__(self, "ports", _ports(self.ports))
        names = _words("namespaces", self.namespaces)
        for name in names:
            _check_label("namespaces", name)
        object.__setattr__(self, "namespaces", tuple(dict.fromkeys(names)))
        for what, kind in (("service", "a Service"), ("pool", "an InferencePool")):
            name = getattr(self, what)
            if not isinstance(name, str):
                raise TypeError(f"{what} is {show(name)}; it must be the name of {kind}")
            if name:
                _check_label(what, name)
        set_ones = [name for name in ("selector", "service", "pool") if getattr(self, name)]
        if (self.prefill_selector or self.decode_selector) and set_ones:
            raise ValueError(
                f"{set_ones[0]} is set beside prefill_selector or decode_selector; it says no stage, so set "
                "the selectors of the stages alone"
            )
        if not self.stages and len(set_ones) != 1:
            found = f"{' and '.join(set_ones)} are" if set_ones else "none of selector, service and pool is"
            raise ValueError(
                f"{found} set; set selector to the labels of the pods, such as app=vllm, service to the name "
                "of a Service, or pool to that of an InferencePool"
            )
        if self.pool and len(self.namespace_list) != 1:
            raise ValueError(
                f"pool is {self.pool} and namespaces has {len(self.namespace_list)} names; an InferencePool "
                "and its pods are in one namespace: name it"
            )
        if not isinstance(self.bootstrap_port_annotation, str) or not self.bootstrap_port_annotation:
            raise ValueError(
                f"bootstrap_port_annotation is {show(self.bootstrap_port_annotation)}; it must be the name "
                "of an annotation, such as vllm.ai/bootstrap-port"
            )
        for what in ("kubeconfig", "context"):
            value = getattr(self, what)
            if value is not None and not (isinstance(value, (str, os.PathLike)) and os.fspath(value)):
                raise ValueError(f"{what} is {show(value)}; it must be a text that is not empty, or None")
        seconds = self.resync_secs
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds <= 3600:
            raise ValueError(f"resync_secs is {show(seconds)}; it must be between 1 and 3600 seconds")
        if self.ip_family not in ("", "ipv4", "ipv6"):
            raise ValueError(f"ip_family is {show(self.ip_family)}; it must be ipv4, ipv6 or empty")

    @property
    def port_list(self) -> tuple[int | str, ...]:
        """The ports as they were checked."""
        return _ports(self.ports)

    @property
    def namespace_list(self) -> tuple[str, ...]:
        """The namespaces as they were checked."""
        return _words("namespaces", self.namespaces)

    @property
    def label_selector(self) -> str:
        """As the API server takes it."""
        if self.pool:
            return ""
        if self.stages:
            return ",".join(covering(self.stages.values()).terms)
        return f"{SERVICE_LABEL}={self.service}" if self.service else ",".join(self.selector)

    @functools.cached_property
    def stages(self) -> Mapping[str, LabelSelector]:
        """Which labels make a pod a worker of which stage; empty: stages are not told apart."""
        terms = {"prefill": self.prefill_selector, "decode": self.decode_selector}
        try:
            return {stage: LabelSelector.parse(some) for stage, some in terms.items() if some}
        except ValueError as error:
            raise ValueError(f"prefill_selector or decode_selector has a mistake: {error}") from None

    @functools.cached_property
    def kept_names(self) -> frozenset[str]:
        """Of labels and annotations that these options name."""
        keys = {key for selector in self.stages.values() for key in selector.of}
        return frozenset({self.bootstrap_port_annotation, "labels", *keys}) if keys else frozenset()

    @property
    def field_selector(self) -> str:
        """As the API server takes it; empty: all objects with the labels."""
        return f"metadata.name={self.pool}" if self.pool else ""

    @property
    def resource(self) -> Literal["pods", "endpointslices", "inferencepools"]:
        """What is listed."""
        if self.pool:
            return "inferencepools"
        return "endpointslices" if self.service else "pods"

    @property
    def family(self) -> str:
        """`ipv4` or `ipv6`: the one to prefer."""
        if self.ip_family:
            return self.ip_family
        for name in ("POD_IP", "KUBERNETES_SERVICE_HOST"):
            try:
                return f"ipv{ipaddress.ip_address(os.environ.get(name, '')).version}"
            except ValueError:
                pass
        return "ipv4"


def _terms(name: str, selector: object) -> tuple[str, ...]:
    if isinstance(selector, Mapping):
        for key, value in selector.items():
            if not isinstance(key, str) or not isinstance(value, str) or not key.strip():
                raise TypeError(f"{name} has {show(key)}={show(value)}; it must map names to texts")
        return tuple(f"{key}={value}" for key, value in selector.items())
    terms = tuple(term.strip() for term in _words(name, selector))
    for term in terms:
        if not term or not term.isprintable():
            raise ValueError(f"{name} has {show(term)}; write terms such as app=vllm or 'tier in (a,b)'")
    return terms


def _words(name: str, value: object) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Iterable):
        raise TypeError(f"{name} is {described(value)}; it must be a text or a list of texts")
    words = tuple(words)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name} has {show(word)}; it must be a text or a list of texts")
    return words


def _check_label(name: str, value: str) -> None:
    if not _LABEL.fullmatch(value):
        raise ValueError(
            f"{name} has {show(value)}; it must be a name of Kubernetes: 1 to 63 of a-z, 0-9 and -, the "
            "first and the last no -"
        )


def _ports(value: object) -> tuple[int | str, ...]:
    words = (value,) if isinstance(value, (int, str)) else value
    if not isinstance(words, Iterable):
        raise TypeError(f"ports is {described(value)}; it must be a list of numbers and names")
    ports: list[int | str] = []
    for word in words:
        port = int(word) if isinstance(word, str) and re.fullmatch("[0-9]{1,5}", word) else word
        number = isinstance(port, int) and not isinstance(port, bool) and 1 <= port <= 65535
        if not number and not (isinstance(port, str) and _PORT_NAME.fullmatch(port)):
            raise ValueError(
                f"ports has {show(word)}; it must be a number between 1 and 65535, or the name of a "
                "container port"
            )
        ports.append(port)
    if not ports:
        raise ValueError("ports is empty; name at least one port, such as 8000")
    return tuple(dict.fromkeys(ports))
