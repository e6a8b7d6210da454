"""Cases: requests, and what of them reaches the worker."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

import json
import re
from typing import Any

from tests.reference.cases import AS_SENT, REQUESTS, ROUND_ROBIN, case, simple
from tests.reference.sides import Router


@case(REQUESTS, "a chat: status, whose response, its id")
def _(router: Router) -> str:
    answer = router.chat()
    return f"{answer.status}, {'the worker’s body' if answer.json['id'].startswith('from-') else 'another body'}, `x-request-id` {re.sub('[A-Za-z0-9]{24,}', '…', answer.headers.get('x-request-id', 'none'))}"


@case(REQUESTS, "the bytes of a chat’s body", why=AS_SENT)
def _(router: Router) -> str:
    sent = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    router.ask("POST", "/v1/chat/completions", sent)
    (request,) = router.seen()
    got = json.loads(request.body)
    added = sorted(set(got) - set(sent))
    return (
        "arrive as sent"
        if request.body == json.dumps(sent).encode()
        else f"rewritten, {len(added)} members added"
        if added
        else "rewritten"
    )


@case(REQUESTS, "members that the router does not know")
def _(router: Router) -> str:
    router.chat(later_member={"a": [1]})
    (request,) = router.seen()
    return "arrive" if json.loads(request.body).get("later_member") == {"a": [1]} else "lost"


for _name, _path, _body in (
    ("`/v1/completions` with token ids", "/v1/completions", {"model": "m", "prompt": [1, 2, 3]}),
    ("`/v1/completions` with a batch", "/v1/completions", {"model": "m", "prompt": ["a", "b"]}),
    ("`/generate`", "/generate", {"text": "Hello"}),
    ("`/inference/v1/generate`", "/inference/v1/generate", {"token_ids": [1, 2], "sampling_params": {}}),
    ("`/v1/embeddings`", "/v1/embeddings", {"model": "m", "input": "Hello"}),
    ("`/v1/responses`", "/v1/responses", {"model": "m", "input": "Hello"}),
    ("`/v1/messages`, unknown there", "/v1/messages", {"model": "m", "max_tokens": 1, "messages": []}),
    ("`/v1/score`, unknown there", "/v1/score", {"model": "m", "text_1": "a", "text_2": "b"}),
):
    simple(REQUESTS, _name, "POST", _path, _body)


@case(REQUESTS, "`/rerank`: the response", why="the engine’s response as it is")
def _(router: Router) -> str:
    answer = router.ask("POST", "/rerank", {"model": "m", "query": "q", "documents": ["a", "b"]})
    return f"{answer.status} {'the worker’s' if answer.json == [{'index': 0, 'score': 0.1, 'document': 'a'}, {'index': 1, 'score': 0.9, 'document': 'b'}] else 'rewritten, sorted by score'}, asked at {router.seen()[0].target}"


_UNFIT = {
    "`/v1/chat/completions` with a body that is no JSON": (b"{no", None),
    "`/v1/chat/completions` without `messages`": ({"model": "m"}, None),
    "`/v1/chat/completions` with an unknown role": (
        {"model": "m", "messages": [{"role": "oracle", "content": "a"}]},
        None,
    ),
    "`/v1/chat/completions` without a content type": (
        {"model": "m", "messages": []},
        {"Content-Type": "text/plain"},
    ),
}
for _name, (_sent, _extra) in _UNFIT.items():

    @case(REQUESTS, _name, why="" if "role" in _name else AS_SENT)
    def _(router: Router, sent: Any = _sent, extra: Any = _extra) -> str:
        answer = router.ask("POST", "/v1/chat/completions", sent, extra)
        return "goes to the worker" if answer.worker != "-" else router.refusal(answer)


@case(REQUESTS, "headers of the client, a chat")
def _(router: Router) -> str:
    router.chat(
        headers={
            "X-Custom": "1",
            "Authorization": "Bearer k",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }
    )
    (request,) = router.seen()
    return (
        ", ".join(name for name in ("x-custom", "authorization", "traceparent") if name in request.headers)
        or "none arrive"
    )


@case(REQUESTS, "headers of the client, another path", why="headers pass on every path")
def _(router: Router) -> str:
    router.ask("POST", "/v1/score", {}, {"X-Custom": "1", "Authorization": "Bearer k"})
    (request,) = router.seen()
    return (
        ", ".join(name for name in ("x-custom", "authorization") if name in request.headers) or "none arrive"
    )


@case(REQUESTS, "query string, another path", why="nothing is lost")
def _(router: Router) -> str:
    router.ask("GET", "/some/path?a=1&b=%20")
    (request,) = router.seen()
    return request.target


@case(REQUESTS, "`GET`, `PUT`, `DELETE`, `PATCH`, `HEAD` of another path")
def _(router: Router) -> str:
    return ", ".join(
        str(router.ask(method, "/some/path").status) for method in ("GET", "PUT", "DELETE", "PATCH", "HEAD")
    )


@case(REQUESTS, "another path with a body that is no JSON", why="the router has no opinion on it")
def _(router: Router) -> str:
    answer = router.ask("POST", "/some/path", b"a=1")
    return "goes to the worker" if answer.worker != "-" else f"{answer.status} plain text"


@case(REQUESTS, "a stream")
def _(router: Router) -> str:
    answer = router.chat(stream=True)
    return f"{answer.status}, {answer.headers['content-type'].split(';')[0]}, {answer.body.count(b'data: ')} events, {'ends with [DONE]' if answer.body.endswith(b'data: [DONE]' + bytes([10, 10])) else 'cut'}"


@case(REQUESTS, "an id that the client sends")
def _(router: Router) -> str:
    answer = router.chat(headers={"X-Request-Id": "mine-1"})
    (request,) = router.seen()
    return f"answered {answer.headers.get('x-request-id')}, the worker sees {request.headers.get('x-request-id', 'none')}"


@case(REQUESTS, "an id in `x-correlation-id`")
def _(router: Router) -> str:
    return f"answered {router.chat(headers={'X-Correlation-Id': 'mine-2'}).headers.get('x-request-id')}"


@case(
    REQUESTS,
    "an id that the router makes",
    why="without its prefix, since engines add their own: the logs of both can be joined",
)
def _(router: Router) -> str:
    answer = router.chat()
    (request,) = router.seen()
    told = request.headers.get("x-request-id")
    return (
        "the worker does not see it"
        if told is None
        else "the worker sees it"
        if told == answer.headers["x-request-id"].split("-")[1]
        else told
    )


@case(REQUESTS, "prefixes of such ids: chat, completion, generate, other", why="every response has one")
def _(router: Router) -> str:
    asked = (
        router.chat(),
        router.complete(),
        router.ask("POST", "/generate", {"text": "a"}),
        router.ask("GET", "/some/path"),
    )
    return ", ".join(answer.headers.get("x-request-id", "none").split("-")[0] for answer in asked)


@case(
    REQUESTS,
    "`--api-key`: chat, other path",
    flags=[*ROUND_ROBIN, "--api-key", "sk-1"],
    why="every request has the key",
)
def _(router: Router) -> str:
    router.chat()
    router.ask("GET", "/some/path")
    seen = {request.target: request.headers.get("authorization", "no key") for request in router.seen()}
    return f"{seen['/v1/chat/completions']}, {seen['/some/path']}"
