"""vllm_router.verl in verl's own rollout router code, as a Ray actor; no GPU, engine or torch.

Importing the package needs torch, so the module that is tested here has empty packages as parents.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.environments import only_in

only_in("verl")

os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")

import ray  # noqa: E402

from vllm_router.verl import VllmRouter  # noqa: E402

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use_in_verl.md"


@pytest.fixture(scope="module")
def rollout_router() -> Any:
    """verl/workers/rollout/router.py."""
    spec = importlib.util.find_spec("verl")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0])
    for name in ("verl", "verl.utils", "verl.workers", "verl.workers.rollout"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    return importlib.import_module("verl.workers.rollout.router")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def parameters(function: Any) -> dict[str, Any]:
    found = inspect.signature(function).parameters
    return {name: one.kind for name, one in found.items() if name != "self"}


def test_the_protocol_is_the_one_that_the_adapter_was_written_for(rollout_router: Any) -> None:
    protocol = rollout_router.RequestLoadBalancer
    methods = {name for name in vars(protocol) if not name.startswith("_")}
    assert methods == {name for name, value in vars(VllmRouter).items() if name[0] != "_" and callable(value)}
    for name in methods:
        asked, ours = parameters(getattr(protocol, name)), parameters(getattr(VllmRouter, name))
        takes_all = inspect.Parameter.VAR_KEYWORD in ours.values()
        assert takes_all or set(asked) == set(ours), name
        for one, kind in asked.items():
            assert one in ours or kind == inspect.Parameter.VAR_KEYWORD, f"{name}({one})"
        assert not inspect.iscoroutinefunction(getattr(VllmRouter, name))


@pytest.mark.usefixtures("cluster")
def test_verl_makes_the_actor_of_the_page_and_uses_it(rollout_router: Any, tmp_path: Path) -> None:
    text = PAGE.read_text().split("`router.yaml`:\n\n")[1].split("\n\n")[0]
    (tmp_path / "router.yaml").write_text("\n".join(line.removeprefix("    ") for line in text.split("\n")))
    servers = {f"10.0.0.{n}:8000": f"handle {n}" for n in range(4)}
    actor = rollout_router.get_router_handle(servers, router_config_path=str(tmp_path / "router.yaml"))

    def call(name: str, *args: Any, **named: Any) -> Any:
        return ray.get(getattr(actor, name).remote(*args, **named), timeout=120)

    assert call("require_acquire_fields") == ["prompt_ids"]
    assert call("require_release_fields") == ["request_id"]
    assert call("get_status")["policy"] == "cache_aware"
    open_turns = []
    for group in range(4):
        prompt = [group] * 600
        placed = [call("acquire_server", request_id=f"{group}/{n}", prompt_ids=prompt) for n in range(4)]
        assert len({server for server, _ in placed}) == 1  # the samples of a prompt
        open_turns += [(server, f"{group}/{n}") for n, (server, _) in enumerate(placed)]
        assert servers[placed[0][0]] == placed[0][1]
    assert call("get_total_inflight") == 16
    told = call("clear_sticky_cache")
    assert sum(told["server_loads"].values()) == 16
    for server, request in open_turns:
        actor.release_server.remote(server_id=server, request_id=request)
    assert call("get_total_inflight") == 0
    call("remove_servers", list(servers))
    with pytest.raises(ray.exceptions.RayTaskError, match="No available servers in load balancer"):
        call("acquire_server", request_id="t", prompt_ids=[1])
    call("add_servers", {"new": "handle"})
    assert call("acquire_server", request_id="t", prompt_ids=[1]) == ("new", "handle")


def test_the_words_for_an_empty_pool_are_those_that_verl_searches_for(rollout_router: Any) -> None:
    client = Path(rollout_router.__file__).with_name("llm_server.py").read_text()
    assert '"No available servers in load balancer" in str(e)' in client
