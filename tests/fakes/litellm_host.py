"""As much of the package litellm as `vllm_router.litellm` meets, in the shapes before and since 1.110.

`load()` imports the adapter on top of it; nothing of it is left afterwards.
"""

import importlib
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FakeCore:
    """A LiteLLM router: its filters leave `healthy`, and `pick()` runs one attempt of a request."""

    def __init__(self, *urls: str) -> None:
        self.model_list = [deployment(url, f"id-{n}") for n, url in enumerate(urls)]
        self.healthy: Any = self.model_list
        self.strategy: Any = None
        self.filtered: list[tuple[str, dict[str, Any]]] = []

    def set_custom_routing_strategy(self, strategy: Any) -> None:
        self.strategy = strategy

    async def async_get_healthy_deployments(self, model: str, _request: Any, **options: Any) -> Any:
        self.filtered.append((model, options))
        return self.healthy

    async def pick(self, request: dict[str, Any], **options: Any) -> Any:
        return await self.strategy.async_get_available_deployment(
            model="m", request_kwargs=request, **options
        )


class FakeRustCore(FakeCore):
    """The same since 1.110."""

    def __init__(self, *urls: str) -> None:
        super().__init__(*urls)
        self._all = self.model_list
        del self.model_list

    def register_plugin(self, strategy: Any) -> None:
        self.strategy = strategy

    def registry(self) -> Any:
        return types.SimpleNamespace(all=lambda: self._all)

    async def select(self, model: str, _request: Any, *, kind: str, **options: Any) -> Any:
        assert kind == "healthy"
        self.filtered.append((model, options))
        return self.healthy

    set_custom_routing_strategy = property()  # deprecated: who reads it fails
    async_get_healthy_deployments = property()


def deployment(url: str | None, name: str) -> dict[str, Any]:
    params = {"model": "openai/m"} if url is None else {"model": "openai/m", "api_base": url}
    return {"model_name": "m", "litellm_params": params, "model_info": {"id": name}}


def event(request: dict[str, Any], picked: dict[str, Any], **members: Any) -> dict[str, Any]:
    """What callbacks are given of an attempt that went to `picked`."""
    names = ("metadata", "litellm_metadata")
    params = {name: request[name] for name in names if name in request}
    params |= {"model_info": picked["model_info"], "api_base": picked["litellm_params"].get("api_base")}
    return {"litellm_params": params, "litellm_trace_id": request.get("litellm_trace_id"), **members}


def _modules() -> dict[str, types.ModuleType]:
    names = ("", ".integrations", ".integrations.custom_logger", ".types", ".types.router")
    modules = {f"litellm{name}": types.ModuleType(f"litellm{name}") for name in names}
    root: Any = modules["litellm"]
    root.callbacks = []
    logger: Any = modules["litellm.integrations.custom_logger"]
    logger.CustomLogger = type("CustomLogger", (), {})
    router: Any = modules["litellm.types.router"]
    router.CustomRoutingStrategyBase = type("CustomRoutingStrategyBase", (), {})
    return modules


@contextmanager
def load() -> Iterator[types.ModuleType]:
    """`vllm_router.litellm` on the fake package."""
    modules = {**_modules(), "vllm_router.litellm": None}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update({name: module for name, module in modules.items() if module is not None})
    sys.modules.pop("vllm_router.litellm", None)
    try:
        yield importlib.import_module("vllm_router.litellm")
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
