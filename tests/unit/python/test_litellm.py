"""vllm_router.litellm: picks, retries and outcomes, on a fake of LiteLLM. tests/hosts has the real one."""

import asyncio
import gc
import importlib
import json
import sys
import types
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.fakes.litellm_host import FakeCore, FakeRustCore, deployment, event, load

URLS = ("http://a:8000/v1", "http://b:8000/v1/", "http://c:8000")
CHAT = [{"role": "user", "content": "How long is the coast? " * 40}]


@pytest.fixture
def adapter() -> Iterator[Any]:
    with load() as module:
        yield module


@pytest.fixture(params=[FakeCore, FakeRustCore], ids=["former", "present"])
def host(request: pytest.FixtureRequest) -> Any:
    return request.param(*URLS)


def loads(strategy: Any) -> list[int]:
    return [worker.load for worker in strategy.core.workers]


def usage(prompt: int, cached: int | None, output: int) -> Any:
    details = None if cached is None else types.SimpleNamespace(cached_tokens=cached)
    used = types.SimpleNamespace(
        prompt_tokens=prompt, completion_tokens=output, prompt_tokens_details=details
    )
    return types.SimpleNamespace(usage=used)


def run(pick: Any) -> Any:
    return asyncio.run(pick)


def test_without_litellm_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    monkeypatch.delitem(sys.modules, "vllm_router.litellm", raising=False)
    with pytest.raises(ImportError, match="pip install litellm"):
        importlib.import_module("vllm_router.litellm")


def test_a_chat_stays_on_its_worker_and_the_load_returns(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host, policy="cache_aware")
    picked = set()
    for _turn in range(4):
        request: dict[str, Any] = {"litellm_trace_id": "t"}
        found = run(host.pick(request, messages=CHAT))
        assert sorted(loads(strategy)) == [0, 0, 1]
        adapter.proxy_handler.log_success_event(event(request, found), usage(200, 0, 5))
        assert loads(strategy) == [0, 0, 0]
        picked.add(found["model_info"]["id"])
    assert len(picked) == 1
    assert strategy.core.worker_urls == ["http://a:8000", "http://b:8000", "http://c:8000"]
    assert {model for model, _ in host.filtered} == {"m"}
    assert host.filtered[0][1]["messages"] == CHAT


def test_what_litellm_drops_returns_its_load(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    request: dict[str, Any] = {"litellm_trace_id": "t", "metadata": {"user": "u"}}
    run(host.pick(request, messages=CHAT))
    assert sum(loads(strategy)) == 1
    del request
    gc.collect()
    assert sum(loads(strategy)) == 0


def test_a_retry_goes_elsewhere_and_a_late_failure_ends_nothing_of_it(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    request: dict[str, Any] = {"litellm_trace_id": "t"}
    first = run(host.pick(request, messages=CHAT))
    second = run(host.pick(request, messages=CHAT))
    assert first is not second
    assert sum(loads(strategy)) == 1
    adapter.proxy_handler.log_failure_event(event(request, first), None)
    assert sum(loads(strategy)) == 1
    adapter.proxy_handler.log_failure_event(event(request, second), None)
    assert sum(loads(strategy)) == 0
    third = run(host.pick(request, messages=CHAT))  # its failure was told before the retry
    assert third is not second


def test_a_retry_stays_where_there_is_no_other(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    host.healthy = [host.healthy[1]]
    request: dict[str, Any] = {"litellm_trace_id": "t"}
    assert run(host.pick(request)) is run(host.pick(request)) is host.healthy[0]
    assert loads(strategy) == [0, 1, 0]


def test_requests_that_share_their_metadata_have_tickets_of_their_own(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    shared: dict[str, Any] = {}
    requests = [{"litellm_trace_id": str(n), "metadata": shared} for n in range(3)]
    picked = [run(host.pick(request)) for request in requests]
    assert sum(loads(strategy)) == 3
    for n, (request, found) in enumerate(zip(requests, picked, strict=True)):
        adapter.proxy_handler.log_success_event(event(request, found), None)
        assert sum(loads(strategy)) == 2 - n
    assert list(shared.values()) == [{}]  # nothing is left of them


def test_the_only_pick_is_meant_by_an_event_with_another_trace(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host, policy="cache_aware")
    request: dict[str, Any] = {"litellm_trace_id": "t"}
    found = run(host.pick(request, messages=CHAT))
    told = event(request, found) | {"litellm_trace_id": "another"}
    adapter.proxy_handler.log_success_event(told, None)
    assert sum(loads(strategy)) == 0
    assert strategy.core.explain({"model": "m", "messages": CHAT}).matched > 0


def test_a_deployment_that_is_named_is_taken_and_counted(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    host.healthy = host.healthy[2]
    assert run(host.pick({}, specific_deployment=True)) is host.healthy
    assert host.filtered[0][1]["specific_deployment"] is True
    gc.collect()
    assert loads(strategy) == [0, 0, 0]


def test_deployments_without_a_plain_address_are_workers_by_their_id(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    others = [deployment(None, "gpt 4/ü"), deployment("https://x.example/openai?api=1", "azure@1")]
    host.healthy = others
    kept = [{} for _ in range(4)]
    assert {id(run(host.pick(request))) for request in kept} == {id(one) for one in others}
    assert set(strategy.core.worker_urls[-2:]) == {"name://gpt%204%2F%C3%BC", "name://azure%401"}


def test_deployments_that_have_left_leave(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host)
    run(host.pick({}))
    (host.model_list if hasattr(host, "model_list") else host._all)[:] = [deployment("http://d:1", "d")]
    run(host.pick({}))
    assert strategy.core.worker_urls == ["http://d:1"]


def test_synchronous_calls_are_decided_alike(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host, policy="cache_aware")
    first: dict[str, Any] = {}
    found = run(host.pick(first, messages=CHAT))
    second: dict[str, Any] = {}
    same = host.strategy.get_available_deployment(model="m", messages=CHAT, request_kwargs=second)
    assert same is found
    assert max(loads(strategy)) == 2


def test_install_again_restores_the_strategy_and_what_it_knows(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host, policy="cache_aware")
    host.strategy = None  # as after update_settings(routing_strategy=...)
    assert adapter.install(host) is strategy is host.strategy
    assert sys.modules["litellm"].callbacks == [adapter.proxy_handler]  # type: ignore[attr-defined]
    other = adapter.install(FakeCore(*URLS))
    assert other is not strategy


def test_a_router_is_not_kept_alive(adapter: Any) -> None:
    host = FakeCore(*URLS)
    adapter.install(host)
    del host
    gc.collect()
    assert len(adapter._strategies) == 0


def test_a_wrong_option_is_refused_at_once(adapter: Any, host: Any) -> None:
    with pytest.raises(TypeError, match="cache_threshold"):
        adapter.install(host, policy="cache_aware", cache_treshold=0.3)
    assert host.strategy is None


def test_the_policy_sees_session_and_tools(adapter: Any, host: Any) -> None:
    adapter.install(host, policy="consistent_hash")
    by_header = {
        run(host.pick({"proxy_server_request": {"headers": {"x-session-id": "s"}}}, messages=[{"n": n}]))[
            "model_info"
        ]["id"]
        for n in range(8)
    }
    assert len(by_header) == 1
    by_user = {run(host.pick({"user": f"u{n}"}))["model_info"]["id"] for n in range(32)}
    assert len(by_user) > 1


@pytest.mark.parametrize(
    "messages",
    [[{"role": "user", "content": object()}], [{"role": "user", "content": float("nan")}], [{"a": "\ud800"}]],
    ids=["object", "nan", "surrogate"],
)
def test_what_is_no_json_is_decided_by_load(adapter: Any, host: Any, messages: Any) -> None:
    strategy = adapter.install(host)
    kept: list[dict[str, Any]] = [{} for _ in range(3)]
    for request in kept:
        run(host.pick(request, messages=messages))
    assert loads(strategy) == [1, 1, 1]


def test_messages_may_be_objects_of_pydantic(adapter: Any, host: Any) -> None:
    class Message:
        def model_dump(self, *, exclude_none: bool) -> Any:
            assert exclude_none
            return CHAT[0]

    adapter.install(host, policy="cache_aware")
    assert run(host.pick({}, messages=[Message()])) is run(host.pick({}, messages=CHAT))


def test_what_the_worker_reported_is_told(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host, policy="cache_aware")
    request: dict[str, Any] = {"litellm_trace_id": "t", "litellm_metadata": {}}
    found = run(host.pick(request, input="How long is the coast?"))
    sent = datetime(2026, 1, 1)
    timed = {"api_call_start_time": sent, "completion_start_time": sent + timedelta(seconds=0.25)}
    told = event(request, found, stream=True, **timed)
    asyncio.run(
        adapter.proxy_handler.async_log_success_event(
            kwargs=told, response_obj=usage(64, 48, 7), start_time=sent, end_time=sent
        )
    )
    (receipt,) = strategy.core.receipts(1)
    assert json.dumps(receipt)
    assert (receipt["prompt_tokens"], receipt["reported_cached_tokens"]) == (64, 48)


def test_counts_that_litellm_made_itself_are_not_told(adapter: Any, host: Any) -> None:
    strategy = adapter.install(host, policy="cache_aware")
    request: dict[str, Any] = {}
    found = run(host.pick(request, messages=CHAT))
    adapter.proxy_handler.log_success_event(event(request, found), usage(64, None, 7))
    assert strategy.core.stats()["cache_prediction"]["reported_tokens"] == 0


def test_an_event_of_another_request_is_ignored(adapter: Any) -> None:
    for kwargs in ({}, {"litellm_params": None}, {"litellm_params": {"metadata": None}}):
        adapter.proxy_handler.log_success_event(kwargs, None)
        asyncio.run(adapter.proxy_handler.async_log_failure_event(kwargs=kwargs, response_obj=None))


def test_the_proxy_installs_at_its_first_request(
    adapter: Any, host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Any = types.ModuleType("litellm.proxy.proxy_server")
    server.llm_router = None
    monkeypatch.setitem(sys.modules, "litellm.proxy", types.ModuleType("litellm.proxy"))
    monkeypatch.setitem(sys.modules, "litellm.proxy.proxy_server", server)
    asyncio.run(adapter.proxy_handler.async_pre_call_hook(None, None, {}, "completion"))
    sys.modules["litellm"].vllm_router = {"policy": "least_load"}  # type: ignore[attr-defined]
    server.llm_router = host
    asyncio.run(adapter.proxy_handler.async_pre_call_hook(None, None, {}, "completion"))
    assert host.strategy.core.policy == "least_load"
