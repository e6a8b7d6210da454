"""LiteLLM: its router picks deployments as `vllm_router.Router` does.

    import litellm, vllm_router.litellm
    router = litellm.Router(model_list=[...])
    vllm_router.litellm.install(router, policy="auto")

LiteLLM keeps connections, retries, cooldowns and filters; of the deployments that these leave, the core picks
one. All deployments with one `api_base` are one worker. A ticket is in the metadata of its request, so that
the load returns where LiteLLM drops a request without a word, as it does with a stream that nobody reads on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
import urllib.parse
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

try:
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.types.router import CustomRoutingStrategyBase
except ModuleNotFoundError as error:
    raise ImportError("vllm_router.litellm needs the package litellm: pip install litellm") from error

from vllm_router._host_models import plain
from vllm_router.router import Router, Ticket

__all__ = ["VllmRouterStrategy", "install", "proxy_handler"]

_PICKS = "vllm_router_picks"  # in the metadata of a request: a _Pick by LiteLLM's trace id
# What policies read of a body besides its messages.
_READ = "prompt input instructions system tools session_params prompt_cache_key conversation conversation_id"
_READ += " user session_id user_id"


class _Pick(NamedTuple):
    ticket: Ticket
    deployment_id: str


class VllmRouterStrategy(CustomRoutingStrategyBase):  # type: ignore[misc]  # litellm may not be installed
    """Picks the deployments of one LiteLLM router, which it does not keep alive. Made by `install()`."""

    def __init__(self, host: Any, core: Router) -> None:
        self._host = weakref.ref(host)
        self.core = core
        self._lock = threading.Lock()
        self._workers = set(core.worker_urls)

    async def async_get_available_deployment(self, model: str, **asked: Any) -> Any:
        """The deployment for a request, out of those that LiteLLM's filters leave."""
        return self._pick(model, await self._healthy(model, asked), asked)

    def get_available_deployment(self, model: str, **asked: Any) -> Any:
        """The same for synchronous calls; a thread runs LiteLLM's filters, which are asynchronous."""
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            healthy = thread.submit(asyncio.run, self._healthy(model, asked)).result()
        return self._pick(model, healthy, asked)

    async def _healthy(self, model: str, asked: dict[str, Any]) -> list[Any]:
        host: Any = self._host()
        options = {name: asked.get(name) for name in ("messages", "input", "specific_deployment")}
        if asked.get("request_kwargs") is None:
            asked["request_kwargs"] = {}
        request = asked["request_kwargs"]
        if hasattr(host, "select"):  # since 1.110
            found = await host.select(model, request, kind="healthy", **options)
        else:
            found = await host.async_get_healthy_deployments(model, request, **options)
        return [found] if isinstance(found, Mapping) else list(found)

    def _pick(self, model: str, healthy: list[Any], asked: dict[str, Any]) -> Any:
        request = asked["request_kwargs"]
        by_worker = {_worker_of(deployment): deployment for deployment in reversed(healthy)}
        self._add(by_worker.keys())
        picks, trace = _picks_of(request), str(request.get("litellm_trace_id"))
        among = set(by_worker)
        if (failed := picks.pop(trace, None)) is not None:
            failed.ticket.finish(end="worker_failed")
            among = among - {failed.ticket.worker_url} or among
        body = {name: request[name] for name in _READ.split() if request.get(name) is not None}
        body |= {name: plain(asked[name]) for name in ("messages", "input") if asked.get(name) is not None}
        body["model"] = model
        headers = (request.get("proxy_server_request") or {}).get("headers") or request.get("extra_headers")
        try:
            ticket = self.core.select(body, headers=headers, among=among)
        except (TypeError, ValueError):  # no JSON: the policy sees a request without text
            ticket = self.core.select(model=model, among=among)
        deployment = by_worker[ticket.worker_url]
        picks[trace] = _Pick(ticket, _id_of(deployment))
        return deployment

    def _add(self, workers: Any) -> None:
        with self._lock:
            if self._workers and workers <= self._workers:
                return
            host: Any = self._host()
            listed = host.registry().all() if hasattr(host, "registry") else host.model_list
            now = {_worker_of(deployment) for deployment in listed} | workers
            for worker in self._workers - now:
                self.core.remove_worker(worker)
            for worker in sorted(now - self._workers):
                self.core.add_worker(worker)
            self._workers = now


class _Outcomes(CustomLogger):  # type: ignore[misc]  # litellm may not be installed
    """Tells tickets how their requests went."""

    def log_success_event(self, kwargs: Any, response_obj: Any, *_: Any, **__: Any) -> None:
        told: dict[str, Any] = {"status": 200}
        usage: Any = getattr(response_obj, "usage", None)
        cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
        if cached is not None:  # without it, the counts are not the worker's but LiteLLM's
            told |= {"prompt_tokens": usage.prompt_tokens, "cached_tokens": cached}
            told["output_tokens"] = usage.completion_tokens
        sent, first = kwargs.get("api_call_start_time"), kwargs.get("completion_start_time")
        if kwargs.get("stream") and sent and first:
            told["first_token_ms"] = max(0.0, (first - sent).total_seconds() * 1000)
        _finish(kwargs, forget=True, **told)

    def log_failure_event(self, kwargs: Any, *_: Any, **__: Any) -> None:
        _finish(kwargs, forget=False, end="worker_failed")  # a retry finds the pick, and avoids its worker

    async def async_log_success_event(self, *event: Any, **named: Any) -> None:
        self.log_success_event(*event, **named)

    async def async_log_failure_event(self, *event: Any, **named: Any) -> None:
        self.log_failure_event(*event, **named)


class _ProxyHandler(_Outcomes):
    async def async_pre_call_hook(self, *_: Any, **__: Any) -> None:
        from litellm.proxy.proxy_server import llm_router

        if llm_router is not None:
            install(llm_router, **(getattr(litellm, "vllm_router", None) or {}))


proxy_handler = _ProxyHandler()  # for `callbacks` in the proxy's `litellm_settings`
_strategies: weakref.WeakKeyDictionary[Any, VllmRouterStrategy] = weakref.WeakKeyDictionary()


def install(router: Any, policy: Any = None, **options: Any) -> VllmRouterStrategy:
    """Let a `vllm_router.Router(policy, **options)` pick the deployments of a `litellm.Router`.

    LiteLLM returns to a strategy of its own when `routing_strategy` is changed at run time. Another call puts
    the strategy of the first call back, with what it knows; `policy` and `options` are not read then. With
    `peer_sync` among the options, processes share what they know.

    Returns the strategy, whose `core` is the `vllm_router.Router`, and raises what that raises.
    """
    strategy = _strategies.get(router)
    if strategy is None:
        strategy = VllmRouterStrategy(router, Router(policy, **options))
        strategy._add(set())
        if options.get("peer_sync") is not None:
            strategy.core.join_peers()
        _strategies[router] = strategy
    if proxy_handler not in litellm.callbacks:
        litellm.callbacks.append(proxy_handler)
    register = getattr(router, "register_plugin", None) or router.set_custom_routing_strategy
    register(strategy)
    return strategy


def _worker_of(deployment: Mapping[str, Any]) -> str:
    base = (deployment.get("litellm_params") or {}).get("api_base")
    if isinstance(base, str) and re.fullmatch(r"https?://[!-~]+", base) and not re.search("[@?#]", base):
        return base.rstrip("/").removesuffix("/v1")
    return "name://" + urllib.parse.quote(_id_of(deployment), safe="")


def _id_of(deployment: Mapping[str, Any]) -> str:
    return str((deployment.get("model_info") or {}).get("id"))


def _picks_of(request: dict[str, Any]) -> dict[str, _Pick]:
    name = "litellm_metadata" if isinstance(request.get("litellm_metadata"), dict) else "metadata"
    if not isinstance(request.get(name), dict):
        request[name] = {}
    picks: dict[str, _Pick] = request[name].setdefault(_PICKS, {})
    return picks


def _finish(kwargs: Mapping[str, Any], forget: bool, **told: Any) -> None:
    params, trace = kwargs.get("litellm_params") or {}, str(kwargs.get("litellm_trace_id"))
    for name in ("litellm_metadata", "metadata"):
        picks = (params.get(name) or {}).get(_PICKS) or {}
        trace = trace if trace in picks or len(picks) != 1 else next(iter(picks))  # the proxy's differs
        pick = picks.get(trace)
        if pick is not None and pick.deployment_id == _id_of(params):
            pick.ticket.finish(**told)
            if forget:
                del picks[trace]
