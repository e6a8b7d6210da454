"""Ray Serve: a request router that chooses replicas as `vllm_router.Router` does.

    LLMConfig(..., deployment_config={"request_router_config": {
        "request_router_class": "vllm_router.ray:VllmRequestRouter",
        "request_router_kwargs": {"policy": "auto"}}})

Ray keeps queues, retries and back-off. Until a replica has accepted a request, its ticket is an attribute of
Ray's pending request, so that the load returns where Ray drops a request that it has not sent.
"""

from __future__ import annotations

import asyncio
import functools
import re
import weakref
from collections.abc import Mapping
from typing import Any

try:
    from ray import __version__ as _version
    from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica
except ModuleNotFoundError as error:
    raise ImportError("vllm_router.ray needs Ray Serve: pip install 'ray[serve]'") from error
if [int(number) for number in re.findall("[0-9]+", _version)[:2]] < [2, 60]:
    raise ImportError(
        f"ray is {_version}, which loses requests under routers other than its own; vllm_router.ray needs "
        "Ray 2.60 or later: pip install 'ray[serve]>=2.60'"
    )

from vllm_router._host_models import plain
from vllm_router.errors import NoWorkersError
from vllm_router.router import Router, Ticket

__all__ = ["VllmRequestRouter"]

_TICKET = "vllm_router_ticket"  # the attribute of a PendingRequest
_READ = ("messages", "prompt", "input", "instructions", "system", "tools", "user", "prompt_cache_key")


class VllmRequestRouter(RequestRouter):  # type: ignore[misc]  # Ray may not be installed
    """The class for `request_router_class`; Ray makes one in each process that has a handle."""

    def initialize_state(self, policy: Any = None, **options: Any) -> None:
        """Make the core.

        Args:
            policy: As that of `vllm_router.Router`.
            **options: Those of `vllm_router.Router`. With `peer_sync`, the routers of all processes that have
                a handle share what they know.

        Raises:
            TypeError: an unknown option.
            ValueError: an unknown policy, or a value out of range.
            OSError: a file of `peer_sync` cannot be read.
        """
        self.core = Router(policy, **options)
        if options.get("peer_sync") is not None:
            self.core.join_peers()
        self._replica_of: dict[str, RunningReplica] = {}  # by the names of workers
        self._open: dict[tuple[str, str], Ticket] = {}  # accepted requests, by id and worker
        self._pending: weakref.WeakValueDictionary[str, PendingRequest] = weakref.WeakValueDictionary()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """The fleet is these replicas."""
        now = {_name_of(replica.replica_id): replica for replica in replicas}
        known = set(self.core.worker_urls)
        for name in known - now.keys():
            self.core.remove_worker(name)
        for name in now:
            if name not in known:
                self.core.add_worker(name)
            elif name not in self._replica_of:  # it was taken for dead
                self.core.set_healthy(name, True)
        self._replica_of = now
        super().update_replicas(replicas)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Ranks of replicas: the chosen one, the two that come next, all others."""
        if pending_request is None or not candidate_replicas or pending_request.future.done():
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # else Ray does not pause between attempts
        before: Ticket | None = vars(pending_request).pop(_TICKET, None)
        if before is not None:
            before.finish(end="not_sent")
        replica_of, among = self._replica_of, None
        if len(candidate_replicas) != len(replica_of):
            replica_of = {_name_of(replica.replica_id): replica for replica in candidate_replicas}
            among = replica_of.keys()
        try:
            ticket = self._select(pending_request, among)
        except NoWorkersError:
            return [candidate_replicas]
        setattr(pending_request, _TICKET, ticket)
        self._pending[pending_request.metadata.internal_request_id] = pending_request
        pending_request.future.add_done_callback(functools.partial(_finish_cancelled, ticket))
        first = replica_of[ticket.worker_url]
        then = [replica_of[name] for name in ticket.alternatives(2) if name in replica_of]
        rest = [replica for replica in candidate_replicas if replica is not first and replica not in then]
        return [[first], then, rest]

    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        """As Ray's. A request that is cancelled between its choice and its sending has no other hook."""
        try:
            return await super()._choose_replica_for_request(pending_request, is_retry=is_retry)
        except asyncio.CancelledError:
            ticket: Ticket | None = vars(pending_request).pop(_TICKET, None)
            if ticket is not None:
                ticket.finish(end="not_sent")
            raise

    def _select(self, pending: PendingRequest, among: Any) -> Ticket:
        metadata = pending.metadata
        session = getattr(metadata, "session_id", "")
        headers = {"X-Session-ID": session} if session else None
        given = _content_of(pending)
        if metadata.multiplexed_model_id:
            given["model"] = metadata.multiplexed_model_id
        try:
            return self.core.select(**given, headers=headers, among=among, alternatives=2)
        except (TypeError, ValueError):  # no JSON: the policy sees a request without text
            return self.core.select(headers=headers, among=among, alternatives=2)

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """A replica has accepted the request: the ticket is one for this replica from now on."""
        super().on_request_routed(pending_request, replica_id, result)
        ticket: Ticket | None = vars(pending_request).pop(_TICKET, None)
        if ticket is None:  # its response has ended before this was told
            return
        name = _name_of(replica_id)
        if ticket.worker_url != name and name in self._replica_of:
            ticket.moved(name)
        self._open[pending_request.metadata.internal_request_id, name] = ticket

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """A response has ended, or a replica has rejected a request; this may precede `on_request_routed`."""
        super().on_request_completed(replica_id, internal_request_id)
        ticket = self._open.pop((internal_request_id, _name_of(replica_id)), None)
        if ticket is None:
            pending = self._pending.get(internal_request_id)
            # A rejection is told while Ray looks for another replica, so there is no result yet.
            if pending is not None and _result_of(pending.future) == replica_id:
                ticket = vars(pending).pop(_TICKET, None)
        if ticket is not None:
            ticket.finish()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """The replica gets no request until Ray lists it again; those that it had have failed."""
        super().on_replica_actor_died(replica_id)
        name = _name_of(replica_id)
        if self._replica_of.pop(name, None) is not None:
            self.core.set_healthy(name, False)
        for key in [key for key in self._open if key[1] == name]:
            self._open.pop(key).finish(end="worker_failed")


def _finish_cancelled(ticket: Ticket, future: Any) -> None:
    if future.cancelled():
        ticket.finish(end="not_sent")


def _result_of(future: Any) -> Any:
    return future.result().replica_id if future.done() and not future.cancelled() else None


def _name_of(replica_id: ReplicaID) -> str:
    return f"ray://{replica_id.unique_id}"


def _content_of(pending: PendingRequest) -> dict[str, Any]:
    """What `Router.select` is given of a request: of Serve LLM an object of pydantic, else what there is."""
    given: dict[str, Any] = {}
    ids = pending.kwargs.get("request_token_ids")
    if ids is not None:
        given["token_ids"] = ids
    for value in (*pending.args, *pending.kwargs.values()):
        if isinstance(value, (bytes, str)):
            is_body = value[:1] in (b"{", "{")
            return {**given, "body" if is_body else "prompt": value}
        members = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
        body = {name: members[name] for name in _READ if members.get(name) is not None}
        if not body:
            continue
        model = members.get("model")
        if body.keys() == {"messages"} and isinstance(body["messages"], list):  # objects may be among them
            return {**given, "messages": body["messages"], "model": model}
        return {**given, "body": {name: plain(item) for name, item in body.items()} | {"model": model}}
    return given
