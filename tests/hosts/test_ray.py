"""vllm_router.ray in Ray Serve itself: its hooks, chats, cancelled requests, full and killed replicas."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.environments import only_in

only_in("ray")

# Workers import the parts, too; a busy machine starts Ray slowly.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")

import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve.config import RequestRouterConfig  # noqa: E402
from ray.serve.request_router import PendingRequest, RequestRouter  # noqa: E402

from tests.fakes.wire import eventually  # noqa: E402
from tests.hosts.ray_parts import KeptRouter, Model  # noqa: E402

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(900)]

REQUESTS = int(os.environ.get("VLLM_ROUTER_TEST_RAY", "10000"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(proxy_location="Disabled")
    yield
    serve.shutdown()
    ray.shutdown()


def deploy(name: str, replicas: int = 3, most: int = 100) -> tuple[Any, KeptRouter]:
    KeptRouter.made.clear()
    routing = RequestRouterConfig(
        request_router_class="tests.hosts.ray_parts:KeptRouter",
        request_router_kwargs={"policy": "cache_aware"},
    )
    deployment = Model.options(
        num_replicas=replicas,
        max_ongoing_requests=most,
        ray_actor_options={"num_cpus": 0.1},
        request_router_config=routing,
    )
    handle = serve.run(deployment.bind(), name=name, route_prefix=None)
    handle.remote({"messages": [{"role": "user", "content": "hello"}]}).result(timeout_s=120)
    (router,) = KeptRouter.made
    return handle, router


def idle(router: KeptRouter) -> None:
    def is_idle() -> bool:
        gc.collect()
        return not any(worker.load for worker in router.core.workers)

    eventually(is_idle, "load is left", patience=120)
    assert not router._open


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_hooks_are_those_that_the_adapter_was_written_for() -> None:
    hooks = {
        "initialize_state": ["kwargs"],
        "update_replicas": ["replicas"],
        "choose_replicas": ["candidate_replicas", "pending_request"],
        "_choose_replica_for_request": ["pending_request", "is_retry"],
        "on_request_routed": ["pending_request", "replica_id", "result"],
        "on_request_completed": ["replica_id", "internal_request_id"],
        "on_replica_actor_died": ["replica_id"],
    }
    assert {name: parameters(getattr(RequestRouter, name)) for name in hooks} == hooks
    fields = parameters(PendingRequest)
    assert fields[:3] == ["args", "kwargs", "metadata"]
    assert {"future", "routing_context"} <= set(fields)
    assert not hasattr(PendingRequest, "__slots__")  # the ticket is an attribute


@pytest.mark.usefixtures("cluster")
def test_chats_stay_on_one_replica() -> None:
    handle, router = deploy("chats")
    histories = [[{"role": "user", "content": f"chat {n} " + f"{n} " * 1000}] for n in range(20)]
    places: list[set[str]] = [set() for _ in histories]
    extended = 0
    for turn in range(6):
        responses = [handle.remote({"messages": history}) for history in histories]
        for history, place, response in zip(histories, places, responses, strict=True):
            replica, had = response.result(timeout_s=120)
            place.add(replica)
            extended += had and turn > 0
            history += [
                {"role": "assistant", "content": "Yes."},
                {"role": "user", "content": f"{turn} " * 50},
            ]
    print(f"{sum(len(p) == 1 for p in places)} of 20 chats on one replica, {extended} of 100 turns extended")
    assert [len(place) for place in places] == [1] * 20
    assert extended == 100
    idle(router)
    serve.delete("chats")


@pytest.mark.usefixtures("cluster")
def test_loads_are_0_after_cancelled_requests_and_a_killed_replica() -> None:
    handle, router = deploy("cancelled")
    assert len(router.core.workers) == 3
    ended = failed = 0
    for begin in range(0, REQUESTS, 50):
        responses = [
            handle.remote({"messages": [{"role": "user", "content": f"{n % 40} " * 100}]})
            for n in range(begin, begin + 50)
        ]
        if begin == REQUESTS // 2 // 50 * 50:
            dies = handle.remote({"die": True, "messages": []})
            with contextlib.suppress(Exception):  # it dies of it
                dies.result(timeout_s=120)
        for n, response in enumerate(responses):
            if n % 10 == 0:
                response.cancel()
                continue
            try:
                response.result(timeout_s=120)
                ended += 1
            except ray.exceptions.RayError:  # of the replica that died
                failed += 1
    print(f"{ended} responses, {REQUESTS // 10} cancelled, {failed} of the killed replica")
    assert ended > 0.85 * REQUESTS
    idle(router)  # though the responses are kept
    assert len(responses) == 50
    serve.delete("cancelled")


@pytest.mark.usefixtures("cluster")
def test_what_a_full_replica_rejects_moves() -> None:
    handle, router = deploy("full", most=1)
    for _ in range(10):
        responses = [handle.remote({"messages": [{"role": "user", "content": "x" * 2000}]}) for _ in range(3)]
        for response in responses:
            response.result(timeout_s=120)
    idle(router)
    serve.delete("full")
