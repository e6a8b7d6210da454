"""What an engine answers through the router is, byte for byte, what it answers without."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.engines.processes import CONTEXT, MODEL, Response, Router, call
from tests.models.fan_out_paths import is_fan_out

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

PATIENCE = 30.0  # seconds for one call

# Random ids and the time are all that may differ. Ids that are made of x-request-id are equal, since it is.
RANDOM = [
    (rb"\b(resp|msg|rs|fc|call|chatcmpl-tool|modelperm)([-_])[0-9a-f]{8,}(-[0-9a-f]+)*", rb"\1\2*"),
    (rb'"(created|created_at|completed_at)":[0-9.]+', rb'"\1":0'),
]


@dataclass(frozen=True)
class Call:
    """A request, and how its response through the router is compared with the engine's own."""

    name: str
    method: str
    target: str
    body: Any = None
    fields: dict[str, str] = field(default_factory=dict)


def post(name: str, target: str, body: Any, **members: Any) -> Call:
    return Call(name, "POST", target, body | members if members else body)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


COMMON = {"model": MODEL, "max_tokens": 6, "temperature": 0, "seed": 1}
TEXT = "Say how long a block is, and what a cache holds."
CHAT = COMMON | {"messages": user(TEXT)}
PROMPT = COMMON | {"prompt": "A router chooses the worker that holds most of"}
RESPONSE = {"model": MODEL, "input": TEXT, "max_output_tokens": 6, "temperature": 0}
MESSAGE = {"model": MODEL, "messages": CHAT["messages"], "max_tokens": 6, "temperature": 0}
CITIES = {"city": {"type": "string", "enum": ["Oslo", "Lima"]}}
CITY = {"type": "object", "properties": CITIES, "required": ["city"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": CITY}}]
NAMED_TOOL = {"type": "function", "function": {"name": "weather"}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "place", "schema": CITY}}
USAGE = {"include_usage": True}
TOKENS = {"model": MODEL, "token_ids": [5, 6, 7], "sampling_params": {"max_tokens": 4, "temperature": 0}}
ITEMS = {"model": MODEL, "query": "a", "items": ["b", "c"], "label_token_ids": [5, 6]}
FORM = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny\r\n--x--\r\n'
MULTIPART = {"content-type": "multipart/form-data; boundary=x"}
CHATS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

CALLS = [
    post("chat", CHATS, CHAT),
    post("chat, stream", CHATS, CHAT, stream=True),
    post("chat, stream, usage", CHATS, CHAT, stream=True, stream_options=USAGE),
    post(
        "chat, stream, usage in each event",
        CHATS,
        CHAT,
        stream=True,
        stream_options=USAGE | {"continuous_usage_stats": True},
    ),
    post("chat, three choices", CHATS, CHAT, n=3, temperature=1),
    post("chat, two choices, stream", CHATS, CHAT, n=2, temperature=1, stream=True),
    post("chat, logprobs", CHATS, CHAT, logprobs=True, top_logprobs=3),
    post("chat, logprobs, stream", CHATS, CHAT, logprobs=True, top_logprobs=2, stream=True),
    post("chat, tools", CHATS, CHAT, tools=TOOLS),
    post(
        "chat, tool required",
        CHATS,
        CHAT,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=1000,
        temperature=1,
    ),
    post(
        "chat, tool named, stream",
        CHATS,
        CHAT,
        tools=TOOLS,
        tool_choice=NAMED_TOOL,
        max_tokens=24,
        stream=True,
    ),
    post("chat, JSON schema", CHATS, CHAT, response_format=SCHEMA, max_tokens=24),
    post("chat, token ids", CHATS, CHAT, return_token_ids=True),
    post("chat, token ids, stream", CHATS, CHAT, return_token_ids=True, stream=True),
    post("chat, parts", CHATS, CHAT, messages=user([{"type": "text", "text": "Hi"}])),
    post("chat, UTF-8", CHATS, CHAT, messages=user("Größe 長さ 🙂")),
    post("chat, salt of the cache", CHATS, CHAT, cache_salt="pepper"),
    post("chat, unknown model", CHATS, CHAT, model="unknown"),
    post("chat, half a JSON text", CHATS, b'{"model": "tiny", "messages": ['),
    post("chat, no body", CHATS, b""),
    Call("chat, not JSON by its type", "POST", CHATS, b"hello", {"content-type": "text/plain"}),
    post("chat, too long", CHATS, CHAT, messages=user("word " * 2 * CONTEXT)),
    post("chat, too long, stream", CHATS, CHAT, messages=user("a b " * CONTEXT), stream=True),
    post("chat, wrong type", CHATS, CHAT, temperature="hot"),
    post("chat, no messages", CHATS, COMMON),
    Call("chat, GET", "GET", CHATS),
    post("chat, rendered", f"{CHATS}/render", CHAT),
    post("completion", COMPLETIONS, PROMPT),
    post("completion, stream", COMPLETIONS, PROMPT, stream=True, stream_options=USAGE),
    post("completion, two choices, logprobs", COMPLETIONS, PROMPT, n=2, temperature=1, logprobs=2),
    post("completion, echo", COMPLETIONS, PROMPT, echo=True),
    post("completion, logprobs of the prompt", COMPLETIONS, PROMPT, prompt_logprobs=1),
    post("completion, two prompts", COMPLETIONS, PROMPT, prompt=["one two three", "four five six"]),
    post("completion, tokens", COMPLETIONS, PROMPT, prompt=[5, 6, 7, 8, 9, 10]),
    post("completion, two lists of tokens", COMPLETIONS, PROMPT, prompt=[[5, 6, 7], [8, 9, 10]]),
    post("completion, unknown model, stream", COMPLETIONS, PROMPT, model="unknown", stream=True),
    post("completion, rendered", f"{COMPLETIONS}/render", PROMPT),
    post("response", "/v1/responses", RESPONSE),
    post("response, stream", "/v1/responses", RESPONSE, stream=True),
    post("response, unknown model", "/v1/responses", RESPONSE, model="unknown"),
    Call("response, unknown id", "GET", "/v1/responses/resp_unknown"),
    Call("response, cancel an unknown id", "POST", "/v1/responses/resp_unknown/cancel"),
    post("message", "/v1/messages", MESSAGE),
    post("message, stream", "/v1/messages", MESSAGE, stream=True),
    post("message, system", "/v1/messages", MESSAGE, system="Be brief."),
    post("message, unknown model", "/v1/messages", MESSAGE, model="unknown"),
    post("message, wrong type", "/v1/messages", MESSAGE, max_tokens="many"),
    post("message, tokens counted", "/v1/messages/count_tokens", MESSAGE),
    post("embedding", "/v1/embeddings", {"model": MODEL, "input": "Hi"}),
    post("pooling", "/pooling", {"model": MODEL, "input": "Hi"}),
    post("classification", "/classify", {"model": MODEL, "input": "Hi"}),
    post("score", "/score", {"model": MODEL, "text_1": "a", "text_2": "b"}),
    post("rerank", "/v1/rerank", {"model": MODEL, "query": "a", "documents": ["b"]}),
    Call("transcription", "POST", "/v1/audio/transcriptions", FORM, MULTIPART),
    post("tokenize, prompt", "/tokenize", {"model": MODEL, "prompt": TEXT}),
    post(
        "tokenize, chat",
        "/tokenize",
        {"model": MODEL, "messages": CHAT["messages"], "return_token_strs": True},
    ),
    post("tokenize, unknown model", "/tokenize", {"model": "unknown", "prompt": TEXT}),
    post("detokenize", "/detokenize", {"model": MODEL, "tokens": [5, 6, 7, 300]}),
    post("tokens in and out", "/inference/v1/generate", TOKENS),
    post("score by generation", "/generative_scoring", ITEMS),
    post("SageMaker's path", "/invocations", CHAT),
    Call("models", "GET", "/v1/models"),
    Call("version", "GET", "/version"),
    Call("ping", "GET", "/ping"),
    Call("load", "GET", "/load"),
    Call("server info", "GET", "/server_info?config_format=json"),
    Call("OpenAPI", "GET", "/openapi.json"),
    Call("unknown path", "GET", "/unknown"),
    Call("health", "GET", "/health"),
    Call("metrics", "GET", "/metrics"),
    Call("prefix caches reset", "POST", "/reset_prefix_cache"),
    post("adapter that is not there", "/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/nowhere"}),
]


# The responses of the router's own, and why. Everything else is the engine's.
ALL_ENGINES = "goes to all engines; the response has that of each"
OWN = {
    "health": "says whether the fleet serves; an engine says nothing but 200",
    "metrics": "are the router's own figures; engines are scraped directly",
    "prefix caches reset": ALL_ENGINES,
    "adapter that is not there": ALL_ENGINES,
}


# Beginnings of paths whose requests concern one engine; everything else that may be posted concerns all.
FOR_ONE = [
    "/cohere/",
    "/detokenize",
    "/generative_scoring",
    "/inference/",
    "/invocations",
    "/ping",
    "/tokenize",
    "/v1/chat/",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/systemone",
    "/is_scaling_elastic_ep",  # asks
    "/fault_tolerance/",  # names ranks of the engine
    "/scale_elastic_ep",  # changes how many ranks this engine has
]


@pytest.fixture(scope="module")
def router(fleet) -> Iterator[Router]:
    with fleet.router("round_robin") as router:
        yield router


def comparable(response: Response) -> tuple[int, str | None, bytes]:
    body = response.body
    for pattern, stand_in in RANDOM:
        body = re.sub(pattern, stand_in, body)
    return response.status, response.fields.get("content-type"), body


def name_of(sent: Call) -> str:
    return sent.name.replace(",", "").replace(" ", "-")


@pytest.mark.parametrize("sent", [sent for sent in CALLS if sent.name not in OWN], ids=name_of)
def test_the_router_changes_no_byte_of_a_response(fleet, router, sent):
    # An engine may differ from itself: the first call fills the cache, which `usage` tells, and tokens that
    # are ready at the same time share an event of a stream, the more the busier the machine is. So each side
    # may say it again, until both have said the same.
    fields = sent.fields | {"x-request-id": "engines-1"}
    seen: dict[str, set[Any]] = {"direct": set(), "router": set()}
    begun = time.monotonic()
    while not seen["direct"] & seen["router"]:
        for side, base in (("direct", fleet.engines[0].url), ("router", router.url)):
            seen[side].add(comparable(call(base, sent.method, sent.target, sent.body, fields)))
        if time.monotonic() > begun + PATIENCE:
            assert seen["direct"] == seen["router"]


@pytest.mark.parametrize("sent", [sent for sent in CALLS if sent.name in OWN], ids=name_of)
def test_the_routers_own_responses_have_the_engines_status(fleet, router, sent):
    direct = call(fleet.engines[0].url, sent.method, sent.target, sent.body)
    routed = call(router.url, sent.method, sent.target, sent.body)
    assert routed.status == direct.status
    assert routed.body != direct.body, "is the engine's, so it is to be compared as such"
    if OWN[sent.name] == ALL_ENGINES:
        assert routed.json() == direct.json() | {
            "workers": [
                {"worker": engine.url, "status": direct.status, "body": direct.json()}
                for engine in fleet.engines
            ]
        }


def test_what_changes_an_engine_goes_to_all_of_them(fleet):
    paths = call(fleet.engines[0].url, "GET", "/openapi.json").json()["paths"]
    changing = {path for path, methods in paths.items() if "post" in methods}
    changing -= {path for path in changing if path.startswith(tuple(FOR_ONE))}
    assert {"/pause", "/reset_prefix_cache"} < changing
    assert [path for path in sorted(changing) if not is_fan_out(path, [])] == []


def test_72_calls_are_compared_each_with_a_name():
    names = {sent.name for sent in CALLS}
    assert len(names) == len(CALLS) == 72
    assert set(OWN) < names
