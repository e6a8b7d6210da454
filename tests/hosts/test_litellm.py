"""vllm_router.litellm in LiteLLM itself: its hooks, chats, streams, retries, and the proxy as a process."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.environments import only_in

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it downloads a file
only_in("litellm")

import litellm  # noqa: E402
import openai  # noqa: E402
from litellm.integrations.custom_logger import CustomLogger  # noqa: E402
from litellm.types.router import CustomRoutingStrategyBase  # noqa: E402

import vllm_router.litellm  # noqa: E402
from tests.fakes.wire import eventually, free_port  # noqa: E402
from vllm_router import Router  # noqa: E402
from vllm_router.testing import SimulatedWorker  # noqa: E402

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use_in_litellm.md"
SYSTEM = "You are a careful assistant. " * 150
CHATS, TURNS = 12, 5


@pytest.fixture
def workers() -> Iterator[list[SimulatedWorker]]:
    found = [SimulatedWorker(engine="instant", model="m") for _ in range(3)]
    yield found
    for worker in found:
        worker.stop()


def host_of(workers: list[SimulatedWorker], **options: Any) -> Any:
    given = {"num_retries": 2, "retry_after": 0, "allowed_fails": 0, "cooldown_time": 600, **options}
    return litellm.Router(
        model_list=[
            {
                "model_name": "m",
                "litellm_params": {"model": "openai/m", "api_base": f"{w.url}/v1", "api_key": "none"},
            }
            for w in workers
        ],
        **given,
    )


def idle(strategy: Any, loop: asyncio.AbstractEventLoop) -> None:
    """All loads return; LiteLLM tells outcomes from a task of its own."""

    async def wait() -> None:
        while any(worker.load for worker in strategy.core.workers):
            gc.collect()
            await asyncio.sleep(0)

    loop.run_until_complete(asyncio.wait_for(wait(), 60))


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """One for a test: LiteLLM keeps tasks in it."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    asyncio.set_event_loop(None)


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_hooks_are_those_that_the_adapter_was_written_for() -> None:
    asked = ["model", "messages", "input", "specific_deployment", "request_kwargs"]
    assert parameters(CustomRoutingStrategyBase.async_get_available_deployment) == asked
    assert parameters(CustomRoutingStrategyBase.get_available_deployment) == asked
    told = ["kwargs", "response_obj", "start_time", "end_time"]
    for name in ("log_success_event", "log_failure_event"):
        assert parameters(getattr(CustomLogger, name)) == told
        assert parameters(getattr(CustomLogger, f"async_{name}")) == told
    hook = parameters(CustomLogger.async_pre_call_hook)
    assert hook == ["user_api_key_dict", "cache", "data", "call_type"]
    router = litellm.Router(model_list=[])
    if hasattr(router, "select"):
        assert {"model", "request_kwargs", "kind", "messages", "input", "specific_deployment"} <= set(
            parameters(router.select)
        )
        assert parameters(router.register_plugin) == ["plugin"]
        assert callable(router.registry().all)
    else:
        assert parameters(router.async_get_healthy_deployments)[:5] == [
            *("model", "request_kwargs", "messages", "input", "specific_deployment")
        ]
        assert parameters(router.set_custom_routing_strategy) == ["CustomRoutingStrategy"]


async def talk(complete: Any) -> None:
    """Chats that share a system prompt: their first turns one after the other, later ones at once."""
    histories = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"chat {n} " + f"{n} " * 900}]
        for n in range(CHATS)
    ]

    async def turn(history: list[Any]) -> None:
        said = await complete(model="m", messages=list(history), max_tokens=16)
        history += [
            {"role": "assistant", "content": said.choices[0].message.content},
            {"role": "user", "content": "Go on. " * 40},
        ]

    for history in histories:
        await turn(history)
    for _ in range(TURNS - 1):
        await asyncio.gather(*(turn(history) for history in histories))


def share(workers: list[SimulatedWorker]) -> float:
    found = [worker.stats() for worker in workers]
    return sum(s["cached_tokens"] for s in found) / sum(s["prompt_tokens"] for s in found)


@pytest.mark.parametrize(("policy", "at_least"), [("cache_aware", 0.95), ("auto", 0.85)])  # auto sees times
def test_as_much_is_cached_as_behind_the_server(
    workers: list[SimulatedWorker], loop: asyncio.AbstractEventLoop, policy: str, at_least: float
) -> None:
    strategy = vllm_router.litellm.install(host := host_of(workers), policy=policy)
    loop.run_until_complete(talk(host.acompletion))
    idle(strategy, loop)
    ours = share(workers)
    others = [SimulatedWorker(engine="instant", model="m") for _ in workers]
    with Router(policy, [w.url for w in others]).serve(log_level="error") as server:
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none")
        loop.run_until_complete(talk(client.chat.completions.create))
        loop.run_until_complete(client.close())
    behind = share(others)
    for worker in others:
        worker.stop()
    print(f"{policy}: {ours:.3f} of prompt tokens cached, {behind:.3f} behind the server")
    assert sum(w.stats()["requests"] for w in workers) == CHATS * TURNS
    assert ours >= at_least * behind > 0.5
    assert strategy.core.stats()["cache_prediction"]["reported_tokens"] > 0


def test_streams_that_are_read_and_dropped_return_their_load(
    workers: list[SimulatedWorker], loop: asyncio.AbstractEventLoop
) -> None:
    strategy = vllm_router.litellm.install(host := host_of(workers))

    async def stream(whole: bool) -> None:
        chunks = await host.acompletion(
            model="m", messages=[{"role": "user", "content": "Hello"}], stream=True, max_tokens=64
        )
        async for _ in chunks:
            assert sum(worker.load for worker in strategy.core.workers) == 1
            if not whole:
                break

    for whole in (True, False, True, False):
        loop.run_until_complete(stream(whole))
        idle(strategy, loop)


def test_a_retry_goes_elsewhere_and_a_cooldown_holds(
    workers: list[SimulatedWorker], loop: asyncio.AbstractEventLoop
) -> None:
    strategy = vllm_router.litellm.install(host := host_of(workers), policy="cache_aware")
    broken = workers[1]
    broken.set_faults(fail_first_n=1000)

    async def one(n: int) -> None:
        said = await host.acompletion(model="m", messages=[{"role": "user", "content": f"{n} " * 50}])
        assert said.choices[0].message.content

    for n in range(24):
        loop.run_until_complete(one(n))
    idle(strategy, loop)
    assert broken.stats()["requests"] == 1  # then it cools down
    assert sum(w.stats()["finished"] for w in workers) == 24


def test_a_strategy_that_was_changed_is_installed_again(
    workers: list[SimulatedWorker], loop: asyncio.AbstractEventLoop
) -> None:
    strategy = vllm_router.litellm.install(host := host_of(workers))
    chosen = lambda: sum(worker.selections for worker in strategy.core.workers)  # noqa: E731
    call = lambda: host.acompletion(model="m", messages=[{"role": "user", "content": "x"}])  # noqa: E731
    loop.run_until_complete(call())
    assert chosen() == 1
    host.update_settings(routing_strategy="least-busy")
    loop.run_until_complete(call())
    assert chosen() == 1
    assert vllm_router.litellm.install(host) is strategy
    loop.run_until_complete(call())
    assert chosen() == 2
    idle(strategy, loop)


def test_other_endpoints_and_synchronous_calls(
    workers: list[SimulatedWorker], loop: asyncio.AbstractEventLoop
) -> None:
    strategy = vllm_router.litellm.install(host := host_of(workers))
    loop.run_until_complete(host.atext_completion(model="m", prompt="Hello"))
    loop.run_until_complete(host.aresponses(model="m", input="Hello"))
    said = host.completion(model="m", messages=[{"role": "user", "content": "Hello"}])
    assert said.choices[0].message.content
    idle(strategy, loop)
    assert sum(worker.selections for worker in strategy.core.workers) == 3
    assert sum(worker.stats()["requests"] for worker in workers) == 3


def test_what_is_logged_of_a_request_can_be_written(
    workers: list[SimulatedWorker], loop: asyncio.AbstractEventLoop
) -> None:
    """Of metadata with a ticket in them, spend logs and callbacks make JSON."""
    host = host_of(workers)
    vllm_router.litellm.install(host)
    seen: list[Any] = []

    class Keeper(CustomLogger):
        async def async_log_success_event(self, kwargs: Any, *_: Any, **__: Any) -> None:
            if kwargs["litellm_params"]["metadata"].get("user") == "of this test":
                seen.append(kwargs)

    litellm.callbacks.append(keeper := Keeper())
    try:
        message = [{"role": "user", "content": "A secret"}]
        metadata = {"user": "of this test"}
        loop.run_until_complete(host.acompletion(model="m", messages=message, metadata=metadata))

        async def wait() -> None:
            while not seen:
                await asyncio.sleep(0)

        loop.run_until_complete(asyncio.wait_for(wait(), 60))
    finally:
        litellm.callbacks.remove(keeper)
    (kwargs,) = seen
    assert json.dumps(kwargs["standard_logging_object"]["metadata"])
    assert "secret" not in str(kwargs["litellm_params"]["metadata"])


@pytest.fixture
def proxy(workers: list[SimulatedWorker], tmp_path: Path) -> Iterator[str]:
    """LiteLLM's proxy with the settings of the page, in front of these workers."""
    if importlib.util.find_spec("fastapi") is None:
        pytest.skip("this LiteLLM is installed without its proxy")
    (settings,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for name, worker in zip(("gpu-0", "gpu-1"), workers, strict=False):
        settings = settings.replace(f"http://{name}:8000", worker.url)
    settings = settings.replace("policy: auto", "policy: cache_aware\n    max_worker_requests: 4")
    assert "gpu-" not in settings
    (tmp_path / "config.yaml").write_text(settings)
    port = free_port()
    command = [str(Path(sys.executable).with_name("litellm")), "--config", str(tmp_path / "config.yaml")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env={**os.environ, "LITELLM_MASTER_KEY": "sk-test"},
        )

    def ready() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
        return "Uvicorn running" in (tmp_path / "log").read_text()

    try:
        eventually(ready, "LiteLLM's proxy did not start", patience=400)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_the_proxy_with_the_openai_sdk(proxy: str, workers: list[SimulatedWorker]) -> None:
    client = openai.OpenAI(base_url=f"{proxy}/v1", api_key="sk-test", max_retries=0)
    hello = [{"role": "user", "content": "Hello"}]
    client.chat.completions.create(model="m", messages=hello, max_tokens=1)  # installs the strategy
    before = [worker.stats()["requests"] for worker in workers[:2]]
    history: list[Any] = [{"role": "user", "content": SYSTEM}]
    for _ in range(3):
        said = client.chat.completions.create(model="m", messages=history, max_tokens=16)
        history += [
            {"role": "assistant", "content": said.choices[0].message.content},
            {"role": "user", "content": "Go on. " * 40},
        ]
    after = [worker.stats()["requests"] for worker in workers[:2]]
    assert sorted(b - a for a, b in zip(before, after, strict=True)) == [0, 3]
    assert said.usage.prompt_tokens_details.cached_tokens > 1000

    # Each of the two workers takes four requests at once here, so streams that keep their load end this.
    for _ in range(16):
        chunks = client.chat.completions.create(model="m", messages=history, stream=True, max_tokens=64)
        next(iter(chunks))
        chunks.close()
    said = client.chat.completions.create(model="m", messages=history, max_tokens=16)
    assert said.choices[0].message.content
