"""Peers: the other routers of a fleet, for a Router that a program uses and does not serve.

    router = Router("auto", peer_sync="redis://redis:6379/0", peer_sync_secret_file="peers.secret")
    with router.join_peers() as peers:
        ...
        peers.status()["members"]

Several processes that choose for the same workers then choose as one would.
"""

from __future__ import annotations

import json
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from vllm_router import _core

if TYPE_CHECKING:
    from vllm_router.router import Router

__all__ = ["Peers"]

# Of the server's settings those that say how to meet others, by name.
PEER_OPTIONS = (
    "peer_sync",
    "peer_sync_fleet",
    "router_name",
    "peer_sync_interval_ms",
    "peer_sync_max_mbps",
    "peer_sync_secret_file",
    "peer_sync_password_file",
    "peer_sync_ca_file",
    "peer_sync_cert_path",
    "peer_sync_key_path",
)


class Peers:
    """What a router shares with others, in a thread of the core. Made by `Router.join_peers()`.

    It ends by `stop()`, by leaving its `with` block, when the router and this are dropped, and as the process
    ends; the others then count this router's load no more. A child that was forked has no such thread: make a
    Router there and let that join.
    """

    def __init__(self, router: Router, options: dict[str, Any]) -> None:
        self._core = _core.JoinedPeers(router, **options)
        self._end = weakref.finalize(self, self._core.stop)

    def stop(self) -> None:
        """Tell the others that this router leaves, and end the thread; again changes nothing."""
        self._end()

    @property
    def running(self) -> bool:
        """False after `stop()`, and in a child that was forked."""
        return self._core.running

    def status(self) -> dict[str, Any]:
        """What `GET /ha/status` of a served router has: `redis`, `members`, `decisions` and more.

        It is as of the last 0.1 s or so; in a child that was forked nothing is up.
        """
        status: dict[str, Any] = json.loads(self._core.status_text())
        return status

    def _forgot(self, url: str | None) -> None:
        """The caches of a worker, or of all, are empty, which the others do not know yet."""
        self._core.tell_forgotten(url)

    def __enter__(self) -> Peers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Peers {'running' if self.running else 'stopped'}>"
