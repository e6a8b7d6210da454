"""verl: the router class for `rollout.router_config_path`.

A file `router.yaml`, which the training names by `actor_rollout_ref.rollout.router_config_path=router.yaml`:

    router_class: vllm_router.verl.VllmRouter
    policy: cache_aware

verl makes one Ray actor of the class for a job, so there is one memory and one count of load. The policy sees
that the samples of a prompt are equal, and that a turn of a trajectory continues the one before.
"""

from __future__ import annotations

import collections
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_router.errors import NoWorkersError
from vllm_router.router import Router, Ticket

__all__ = ["VllmRouter"]


class VllmRouter:
    """Chooses a rollout server for each turn of a trajectory; verl's protocol `RequestLoadBalancer`.

    Args:
        servers: Handles by server id; there may be none at first.
        config: The YAML file as a dict. `policy` and the other options are those of `vllm_router.Router`;
            `ticket_lease_secs` is 7,200 unless given, for clients that die with a request open.
            With `caches_survive_clear`, false unless given, `clear_sticky_cache()` leaves what is known of
            caches: for jobs that call it to balance load, and not because weights have changed.

    Raises:
        TypeError: an unknown option.
        ValueError: an unknown policy, or a value out of range.
    """

    def __init__(self, servers: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        options: dict[str, Any] = {"ticket_lease_secs": 7200, **config}
        options.pop("router_class", None)
        self._caches_survive = options.pop("caches_survive_clear", False)
        if not isinstance(self._caches_survive, bool):
            raise TypeError(
                f"caches_survive_clear is of type {type(self._caches_survive).__name__}; it says if "
                "clear_sticky_cache() leaves what is known of caches and must be true or false"
            )
        self.core = Router(options.pop("policy", None), **options)
        self._epoch = 0
        self._servers: dict[str, Any] = {}
        self._ids: dict[str, str] = {}  # of servers, by the names of workers
        self._open: dict[tuple[str, str], collections.deque[Ticket]] = {}
        self.add_servers(servers)

    def require_acquire_fields(self) -> list[str]:
        """What `acquire_server` is to be told of a request."""
        return ["prompt_ids"]

    def require_release_fields(self) -> list[str]:
        """What `release_server` is to be told of it."""
        return ["request_id"]

    def acquire_server(
        self, request_id: str, prompt_ids: Sequence[int] | None = None, **_: Any
    ) -> tuple[str, Any]:
        """Choose a server for a turn.

        Args:
            request_id: The trajectory's id, the same in each turn.
            prompt_ids: The whole prompt as token ids.

        Returns:
            The server's id and handle.

        Raises:
            RuntimeError: no server can be chosen. verl's client waits for servers if it reads these words.
        """
        session = {"X-Session-ID": f"{request_id}@{self._epoch}"}  # of this epoch: no former one is found
        try:
            ticket = self.core.select(token_ids=prompt_ids, headers=session)
        except NoWorkersError as error:
            raise RuntimeError(f"No available servers in load balancer: {error}") from None
        server_id = self._ids[ticket.worker_url]
        self._open.setdefault((server_id, request_id), collections.deque()).append(ticket)
        return server_id, self._servers[server_id]

    def release_server(self, server_id: str, request_id: str | None = None, **_: Any) -> None:
        """A turn has ended; one that is unknown, as after its server was removed, changes nothing."""
        key = (server_id, request_id or "")
        tickets = self._open.get(key)
        if tickets is None:
            return
        tickets.popleft().finish()
        if not tickets:
            del self._open[key]

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Add servers; of one that is there already the handle is replaced."""
        for server_id, handle in servers.items():
            if server_id not in self._servers:
                self.core.add_worker(_name_of(server_id))
            self._servers[server_id] = handle
            self._ids[_name_of(server_id)] = server_id

    def remove_servers(self, server_ids: Iterable[str]) -> None:
        """Remove servers; their open turns have failed."""
        for server_id in server_ids:
            if self._servers.pop(server_id, None) is None:
                continue
            self.core.remove_worker(_name_of(server_id))
            for key in [key for key in self._open if key[0] == server_id]:
                for ticket in self._open.pop(key):
                    ticket.finish(end="worker_failed")

    def get_all_servers(self) -> list[str]:
        """The ids of all servers."""
        return list(self._servers)

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Begin an epoch: no trajectory is bound any more, and caches are empty, as with new weights.

        Open turns keep their load until they are released.

        Returns:
            `cleared_entries`, the number of open trajectories, and `server_loads`, open turns by server.
        """
        self._epoch += 1
        if not self._caches_survive:
            self.core.forget()
        cleared = len({request_id for _, request_id in self._open})
        return {"cleared_entries": cleared, "server_loads": self._loads()}

    def get_total_inflight(self) -> int:
        """The number of open turns, for which verl waits to become 0 before it changes weights."""
        return sum(self._loads().values())

    def get_status(self) -> dict[str, Any]:
        """For debugging: open turns by server and in all, the number of servers, policy and epoch."""
        loads = self._loads()
        return {
            "servers": loads,
            "total_inflight": sum(loads.values()),
            "active_servers": len(loads),
            "policy": self.core.policy,
            "epoch": self._epoch,
        }

    def _loads(self) -> dict[str, int]:
        return {self._ids[worker.url]: worker.load for worker in self.core.workers}


def _name_of(server_id: str) -> str:
    return "name://" + urllib.parse.quote(server_id, safe="")
