"""The names of vllm-project/router's native module, for frameworks that import them.

    from vllm_router_rs import PolicyType, Router

New code imports both from `vllm_router`. The defaults are those of that module: the policy `round_robin` and
port 3001.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from vllm_router.errors import UnusedOptionWarning
from vllm_router.router import PolicyType
from vllm_router.router import Router as _Router
from vllm_router.router_args import RouterArgs

__all__ = ["PolicyType", "Router"]


class Router:
    """A router that is served by `start()`.

    Args:
        worker_urls: The workers' base URLs.
        policy: What chooses the worker.
        host: The address to listen on.
        port: The port to listen on.
        **settings: Fields of `vllm_router.RouterArgs` by name. Those whose functions are not implemented are
            accepted at their defaults.

    Raises:
        TypeError: an unknown name; the message says the nearest one.
        ValueError: a value out of range, or one whose function is not implemented.
    """

    def __init__(
        self,
        worker_urls: Iterable[str],
        policy: PolicyType | str = PolicyType.RoundRobin,
        host: str = "127.0.0.1",
        port: int = 3001,
        **settings: Any,
    ) -> None:
        name = policy.value if isinstance(policy, PolicyType) else policy
        args = RouterArgs(worker_urls=list(worker_urls), policy=name, host=host, port=port, **settings)
        args._validate_router_args()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnusedOptionWarning)  # settings come as a whole here, read or not
            self._router = _Router.from_args(args)

    def start(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self._router.start()
