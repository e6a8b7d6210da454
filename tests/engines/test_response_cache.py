"""The response cache before real engines: what an engine said is said again, and only that."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.engines.processes import MODEL, Response, Router, call

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

MESSAGES = [{"role": "user", "content": "Say how long a block is."}]
CHAT = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "temperature": 0}
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/messages")


@pytest.fixture
def router(fleet) -> Iterator[Router]:
    with fleet.router("cache_aware", "--response-cache", "--response-cache-routes", *ROUTES) as router:
        yield router


def ask(router: Router, **members: Any) -> tuple[str, Response]:
    response = call(router.url, "POST", "/v1/chat/completions", {**CHAT, **members})
    assert response.status == 200, response.body
    return response.fields["x-cache"], response


def worked(fleet) -> float:
    return sum(engine.requests() for engine in fleet.engines)


@pytest.mark.parametrize("members", [{}, {"stream": True, "stream_options": {"include_usage": True}}])
def test_an_engine_is_asked_once(fleet, router, members):
    first, said = ask(router, **members)
    before = worked(fleet)
    second, again = ask(router, **members)
    assert (first, second) == ("MISS", "HIT")
    assert again.body == said.body
    assert worked(fleet) == before


def test_what_is_sampled_reaches_an_engine_each_time(router):
    sampled = {name: value for name, value in CHAT.items() if name != "temperature"}
    for body in (sampled, CHAT | {"temperature": 1}):
        for _ in range(2):
            response = call(router.url, "POST", "/v1/chat/completions", body)
            assert response.fields["x-cache"] == "BYPASS"


def test_what_an_engine_rejects_is_not_kept(router):
    for _ in range(2):
        response = call(router.url, "POST", "/v1/chat/completions", CHAT | {"max_tokens": -1})
        assert (response.status, response.fields["x-cache"]) == (400, "MISS")
    stats = call(router.url, "GET", "/admin/response-cache/stats").json()
    assert (stats["entries"], stats["requests"]["miss"]) == (0, 2)


def test_a_request_that_changes_weights_outdates_all(router):
    assert [ask(router)[0] for _ in range(2)] == ["MISS", "HIT"]
    # Whether the engine has this endpoint does not matter: what it did is not known.
    call(router.url, "POST", "/collective_rpc", {"method": "reload_weights"})
    assert ask(router)[0] == "MISS"


def test_sdks_cannot_tell_it(router):
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="k", max_retries=0, timeout=120) as gpt:
        first, second = (gpt.chat.completions.create(**CHAT) for _ in range(2))
        assert second == first
        streams = [
            list(gpt.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
            for _ in range(2)
        ]
        assert streams[0] == streams[1]
    question = {"model": MODEL, "messages": MESSAGES, "max_tokens": 12, "extra_body": {"temperature": 0}}
    with anthropic.Anthropic(base_url=router.url, api_key="k", max_retries=0, timeout=120) as claude:
        assert claude.messages.create(**question) == claude.messages.create(**question)
        with claude.messages.stream(**question) as one:
            whole = one.get_final_message()
        with claude.messages.stream(**question) as two:
            assert two.get_final_message() == whole
    requests = json.loads(call(router.url, "GET", "/admin/response-cache/stats").body)["requests"]
    assert requests == {"hit": 4, "miss": 4, "skip": 0, "total": 8}
