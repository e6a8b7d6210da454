"""As much of Ray Serve as `vllm_router.ray` meets: replicas, pending requests, and the base of routers."""

import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ReplicaID:
    unique_id: str


class RunningReplica:
    def __init__(self, name: str) -> None:
        self.replica_id = ReplicaID(name)


@dataclass
class Metadata:
    internal_request_id: str
    session_id: str = ""
    multiplexed_model_id: str = ""


class Future:
    """Of a pending request: the replica to which it goes. Callbacks run at once."""

    def __init__(self) -> None:
        self._state: Any = None
        self._callbacks: list[Any] = []

    def add_done_callback(self, callback: Any) -> None:
        self._callbacks.append(callback)

    def done(self) -> bool:
        return self._state is not None

    def cancelled(self) -> bool:
        return self._state == "cancelled"

    def result(self) -> Any:
        return self._state

    def set_result(self, replica: Any) -> None:
        self._end(replica)

    def cancel(self) -> None:
        self._end("cancelled")

    def _end(self, state: Any) -> None:
        if self._state is None:
            self._state = state
            for callback in self._callbacks:
                callback(self)
            self._callbacks.clear()


@dataclass
class PendingRequest:
    args: list[Any]
    kwargs: dict[str, Any]
    metadata: Metadata
    future: Future = field(default_factory=Future)
    routing_context: Any = field(default_factory=lambda: types.SimpleNamespace(should_backoff=False))


class RequestRouter:
    """The base class, which only notes that its hooks are reached."""

    def __init__(self) -> None:
        self.reached: list[str] = []

    def update_replicas(self, _replicas: Any) -> None:
        self.reached.append("update_replicas")

    def on_request_routed(self, _pending_request: Any, _replica_id: Any, _result: Any) -> None:
        self.reached.append("on_request_routed")

    def on_request_completed(self, _replica_id: Any, _internal_request_id: str) -> None:
        self.reached.append("on_request_completed")

    def on_replica_actor_died(self, _replica_id: Any) -> None:
        self.reached.append("on_replica_actor_died")


@contextmanager
def load(version: str = "2.60.0") -> Iterator[types.ModuleType]:
    """`vllm_router.ray` on the fake package."""
    names = ("ray", "ray.serve", "ray.serve.request_router")
    modules: dict[str, Any] = {name: types.ModuleType(name) for name in names}
    modules["ray"].__version__ = version
    for thing in (PendingRequest, ReplicaID, RequestRouter, RunningReplica):
        setattr(modules["ray.serve.request_router"], thing.__name__, thing)
    before = {name: sys.modules.pop(name, None) for name in (*names, "vllm_router.ray")}
    sys.modules.update(modules)
    try:
        yield importlib.import_module("vllm_router.ray")
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
