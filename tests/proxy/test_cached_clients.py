"""The openai and anthropic clients cannot tell a stored response from a worker's, streamed or not."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.unit.simulation.wire import FAST
from vllm_router.testing import SimulatedWorker

MESSAGES = [{"role": "user", "content": "Tell me about caches."}]
ASKED = {"model": "simulated-model", "max_tokens": 12, "temperature": 0, "messages": MESSAGES}
# Newer clients of Anthropic's know no temperature.
OF_ANTHROPIC = {name: ASKED[name] for name in ("model", "max_tokens", "messages")} | {
    "extra_body": {"temperature": 0}
}
ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/messages"]


@pytest.fixture
def url(harness) -> Iterator[str]:
    with harness.keeping_descriptors(), SimulatedWorker(**FAST) as worker:
        router = harness.router(worker.url, response_cache=True, response_cache_routes=ROUTES)
        yield f"http://127.0.0.1:{router.server.port}"


def hits(url: str) -> dict[str, int]:

    with urllib.request.urlopen(f"{url}/admin/response-cache/stats") as reply:
        return json.load(reply)["requests"]


def twice(url: str, ask: Callable[[], Any]) -> Any:
    """What a client has of the worker's response, which has to be what it has of the stored one."""
    first, second = ask(), ask()
    assert second == first
    assert hits(url) == {"hit": 1, "miss": 1, "skip": 0, "total": 2}
    return second


def test_the_openai_client_chats(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        answer = twice(url, lambda: client.chat.completions.create(**ASKED))
    assert answer.usage.completion_tokens == 12
    assert answer.choices[0].message.content


def test_the_openai_client_streams(url):
    def ask() -> list[Any]:
        with client.chat.completions.create(
            **ASKED, stream=True, stream_options={"include_usage": True}
        ) as stream:
            return list(stream)

    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        chunks = twice(url, ask)
    assert chunks[-1].usage.completion_tokens == 12


def test_the_openai_client_completes(url):
    question = {"model": "simulated-model", "prompt": ["a", "b"], "max_tokens": 3, "temperature": 0}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        answer = twice(url, lambda: client.completions.create(**question))
    assert [choice.index for choice in answer.choices] == [0, 1]


def test_the_openai_client_that_says_no_temperature_always_reaches_a_worker(url):
    question = {name: value for name, value in ASKED.items() if name != "temperature"}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        for _ in range(2):
            client.chat.completions.create(**question)
    assert hits(url) == {"hit": 0, "miss": 0, "skip": 2, "total": 2}


def test_the_anthropic_client_gets_messages(url):
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        message = twice(url, lambda: client.messages.create(**OF_ANTHROPIC))
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 12)


def test_the_anthropic_client_streams_messages(url):
    def ask() -> Any:
        with client.messages.stream(**OF_ANTHROPIC) as stream:
            return list(stream.text_stream), stream.get_final_message()

    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        texts, message = twice(url, ask)
    assert "".join(texts) == message.content[0].text
