"""One address in front of many LLM workers: routing by prefix cache and load, as a command and a library."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vllm_router._mixed import warn_of_foreign_files
from vllm_router._version import __version__

warn_of_foreign_files(__path__[0], __version__)

# Names are imported when first used, so that `vllm-router --help` need not wait for numpy.
if TYPE_CHECKING:
    from vllm_router.blocks import BlockCacheTracker as BlockCacheTracker
    from vllm_router.blocks import BlockMatch as BlockMatch
    from vllm_router.blocks import hash_blocks as hash_blocks
    from vllm_router.errors import IndexFileError as IndexFileError
    from vllm_router.errors import NoWorkersError as NoWorkersError
    from vllm_router.errors import RouterError as RouterError
    from vllm_router.errors import TicketFinishedError as TicketFinishedError
    from vllm_router.errors import UnusedOptionWarning as UnusedOptionWarning
    from vllm_router.errors import WorkerExistsError as WorkerExistsError
    from vllm_router.errors import WorkerNotFoundError as WorkerNotFoundError
    from vllm_router.explanation import Explanation as Explanation
    from vllm_router.explanation import RankedWorker as RankedWorker
    from vllm_router.hash_ring import HashRing as HashRing
    from vllm_router.peers import Peers as Peers
    from vllm_router.prefix_tree import PrefixMatch as PrefixMatch
    from vllm_router.prefix_tree import StringTree as StringTree
    from vllm_router.prefix_tree import TokenTree as TokenTree
    from vllm_router.reload import ReloadReport as ReloadReport
    from vllm_router.router import Batch as Batch
    from vllm_router.router import PolicyType as PolicyType
    from vllm_router.router import Router as Router
    from vllm_router.router import Ticket as Ticket
    from vllm_router.router import WorkerInfo as WorkerInfo
    from vllm_router.router_args import RouterArgs as RouterArgs
    from vllm_router.server import Server as Server

__all__ = [
    "Batch",
    "BlockCacheTracker",
    "BlockMatch",
    "Explanation",
    "HashRing",
    "IndexFileError",
    "ModelNotFoundError",
    "NoWorkersError",
    "Peers",
    "PolicyType",
    "PrefixMatch",
    "RankedWorker",
    "ReloadReport",
    "Router",
    "RouterArgs",
    "RouterError",
    "Server",
    "StringTree",
    "Ticket",
    "TicketFinishedError",
    "TokenTree",
    "UnusedOptionWarning",
    "WorkerExistsError",
    "WorkerInfo",
    "WorkerNotFoundError",
    "__version__",
    "hash_blocks",
]

_HOMES = {
    "Batch": "router",
    "BlockCacheTracker": "blocks",
    "BlockMatch": "blocks",
    "Explanation": "explanation",
    "HashRing": "hash_ring",
    "IndexFileError": "errors",
    "ModelNotFoundError": "errors",
    "NoWorkersError": "errors",
    "Peers": "peers",
    "PolicyType": "router",
    "PrefixMatch": "prefix_tree",
    "RankedWorker": "explanation",
    "ReloadReport": "reload",
    "Router": "router",
    "Server": "server",
    "RouterArgs": "router_args",
    "RouterError": "errors",
    "StringTree": "prefix_tree",
    "Ticket": "router",
    "TicketFinishedError": "errors",
    "TokenTree": "prefix_tree",
    "UnusedOptionWarning": "errors",
    "WorkerExistsError": "errors",
    "WorkerInfo": "router",
    "WorkerNotFoundError": "errors",
    "hash_blocks": "blocks",
}


def __getattr__(name: str) -> Any:
    if name != "_core" and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "_core":
            return import_module("vllm_router._core")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "vllm_router._core":
            raise
        raise ImportError(
            "vllm_router's C++ extension is not built. Run `pip install .` in the source tree, or "
            "`make build` and set PYTHONPATH=build/release/python."
        ) from error


def __dir__() -> list[str]:
    """Public names, and modules that are there."""
    return sorted({*__all__, *(name for name, value in globals().items() if isinstance(value, ModuleType))})
