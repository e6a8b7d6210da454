"""Discovery: sources of workers, each of which declares its whole list of workers again and again.

    router.follow(FileSource("workers.yaml"))       a file
    router.follow(DnsSource(["http://vllm.svc"]))   DNS; needs the package dnspython
    router.follow(MySource())                       anything that can list workers: see Source
    router.reconcile("mine", [WorkerSpec(url)])     one list, without a thread

What a list changes, compared with the one before, is worked out by `Router.reconcile()`. So an event that was
lost does no harm beyond the next list, and a source that cannot tell its list leaves the fleet as it was.

    source            WorkerSpec, Listing, Source, and Follower, the thread in which a source is followed
    file              FileSource: a YAML or JSON file
    dns               DnsSource: A, AAAA and SRV records
    kubernetes        KubernetesSource: pods or EndpointSlices
    inference_pool    InferencePoolSource: the pods of an InferencePool
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vllm_router.discovery.source import Difference, Follower, Listing, Source, SourceError, WorkerSpec

if TYPE_CHECKING:
    from vllm_router.discovery.dns import DnsSource as DnsSource
    from vllm_router.discovery.file import FileSource as FileSource
    from vllm_router.discovery.inference_pool import InferencePoolSource as InferencePoolSource
    from vllm_router.discovery.kubernetes import KubernetesSource as KubernetesSource

__all__ = [
    "Difference",
    "DnsSource",
    "FileSource",
    "Follower",
    "InferencePoolSource",
    "KubernetesSource",
    "Listing",
    "Source",
    "SourceError",
    "WorkerSpec",
]

# Imported when first used: most of them need packages that are not always there.
_HOMES = {
    "DnsSource": "dns",
    "FileSource": "file",
    "InferencePoolSource": "inference_pool",
    "KubernetesSource": "kubernetes",
}


def __getattr__(name: str) -> Any:
    """A source by its name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
