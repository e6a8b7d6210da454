"""Cases: two workers for one request (prefill and decode)."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.reference.cases import AS_SENT, PLAIN, ROUND_ROBIN, STAGES, case
from tests.reference.sides import Router
from tests.reference.workers import Seen, Worker

ONCE = "what the router does not know is executed once, by a prefill worker"
LOCAL = "blocks of one prompt cannot stand for several: one decode worker computes such a request"
AS_IT_CAME = "prefill’s own response, with its headers"
BOTH = "both workers get the client’s headers"
PARAMETERS = {
    "remote_block_ids": [[1, 2]],
    "remote_engine_id": "engine",
    "remote_request_id": "request",
    "remote_host": "127.0.0.1",
    "remote_port": 5600,
}


def body_of(worker: Worker) -> dict[str, Any]:
    """Of the only request that it got."""
    (request,) = worker.seen
    value = json.loads(request.body)
    assert isinstance(value, dict)
    return value


def served(router: Router) -> str:
    """Which workers got how many requests."""
    return (
        ", ".join(f"{worker.name} × {len(worker.seen)}" for worker in router.fleet if worker.seen) or "none"
    )


def numbers(router: Router, *names: str) -> str:
    """The members of both copies."""
    parts = []
    for worker in router.fleet:
        got = body_of(worker)
        parts.append(
            ", ".join(f"{name} {json.dumps(got[name])}" if name in got else f"no {name}" for name in names)
        )
    return f"prefill: {parts[0]}; decode: {parts[1]}"


def hand_over(worker: Worker, **more: Any) -> None:
    worker.says = {"choices": [{"finish_reason": "length"}], "kv_transfer_params": PARAMETERS | more}


@case(STAGES, "a chat, prefill says nothing of its blocks", stages=(1, 1))
def _(router: Router) -> str:
    answer = router.chat(max_tokens=17)
    return f"{answer.status} of {answer.worker}, {served(router)}"


@case(STAGES, "a stream, prefill says nothing of its blocks", stages=(1, 1))
def _(router: Router) -> str:
    answer = router.chat(stream=True)
    return f"{answer.status} of {answer.worker}, {answer.body.count(b'data:')} events"


for _name, _path, _body in (
    ("`/v1/chat/completions`", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 17}),
    ("`/v1/completions`", "/v1/completions", {"prompt": "Hi", "max_tokens": 17}),
    ("`/v1/completions` with token ids", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 17}),
):  # fmt: skip

    @case(STAGES, f"{_name}: `max_tokens`, `stream` of both copies", stages=(1, 1))
    def _(router: Router, path: str = _path, body: dict[str, Any] = _body) -> str:
        router.ask(
            "POST", path, {"model": "m", "stream": True, "stream_options": {"include_usage": True}, **body}
        )
        return numbers(router, "max_tokens", "stream", "stream_options")


@case(STAGES, "`min_tokens` 5 of both copies", stages=(1, 1))
def _(router: Router) -> str:
    router.complete(max_tokens=17, min_tokens=5)
    return numbers(router, "max_tokens", "min_tokens")


@case(STAGES, "`max_completion_tokens` of both copies", stages=(1, 1))
def _(router: Router) -> str:
    router.chat(max_completion_tokens=17)
    return numbers(router, "max_completion_tokens")


@case(STAGES, "`/v1/responses`: `max_output_tokens` of both copies", stages=(1, 1))
def _(router: Router) -> str:
    router.ask("POST", "/v1/responses", {"model": "m", "input": "Hi", "max_output_tokens": 17})
    return numbers(router, "max_output_tokens")


@case(
    STAGES,
    "`/inference/v1/generate`: `sampling_params` of both copies",
    why="a minimum is lowered where there is one, and not added",
    stages=(1, 1),
)
def _(router: Router) -> str:
    router.ask(
        "POST",
        "/inference/v1/generate",
        {"model": "m", "token_ids": [1, 2], "sampling_params": {"max_tokens": 17}},
    )
    return numbers(router, "sampling_params")


@case(STAGES, "members of a copy that the client did not send", stages=(1, 1), why=AS_SENT)
def _(router: Router) -> str:
    sent = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 17,
        "later": {"a": [1]},
    }
    router.ask("POST", "/v1/chat/completions", sent)
    more = [sorted(set(body_of(worker)) - set(sent)) for worker in router.fleet]
    lost = [sorted(set(sent) - set(body_of(worker))) for worker in router.fleet]
    assert lost == [[], []]
    return f"prefill {len(more[0])}, decode {len(more[1])}"


@case(STAGES, "what prefill is told of the transfer", stages=(1, 1))
def _(router: Router) -> str:
    router.chat()
    return json.dumps(body_of(router.fleet[0])["kv_transfer_params"], sort_keys=True)


@case(STAGES, "what prefill said of its blocks, at decode", stages=(1, 1))
def _(router: Router) -> str:
    hand_over(router.fleet[0], later=1)
    router.chat()
    arrived = body_of(router.fleet[1]).get("kv_transfer_params")
    return "arrives whole" if arrived == PARAMETERS | {"later": 1} else "changed"


@case(
    STAGES,
    "half of what decode needs, at decode",
    stages=(1, 1),
    why="half of it ends the engine’s process; decode computes the prompt",
)
def _(router: Router) -> str:
    hand_over(router.fleet[0], remote_host=None)
    router.chat()
    return "arrives" if "kv_transfer_params" in body_of(router.fleet[1]) else "does not"


@case(
    STAGES,
    "`kv_transfer_params` of a client, at decode",
    stages=(1, 1),
    why="a client could read another prompt’s cache or end an engine",
)
def _(router: Router) -> str:
    router.complete(kv_transfer_params=PARAMETERS)
    return "arrive" if "kv_transfer_params" in body_of(router.fleet[1]) else "removed"


@case(STAGES, "`x-request-id` of both copies, and the client’s", stages=(1, 1))
def _(router: Router) -> str:
    answer = router.chat(headers={"X-Request-Id": "mine"})
    ids = [worker.seen[0].headers["x-request-id"] for worker in router.fleet]
    shown = ids[0]
    for worker in router.fleet:
        shown = shown.replace(worker.url.removeprefix("http://"), f"HOST:PORT of {worker.name}")
    return f"{'equal' if ids[0] == ids[1] else 'two'}, {re.sub('[0-9a-f]{32}$', '<32 hex>', shown)}; {answer.headers['x-request-id']}"


@case(STAGES, "headers of the client at both", stages=(1, 1), why=BOTH)
def _(router: Router) -> str:
    router.chat(headers={"Authorization": "Bearer mine", "X-Session-ID": "s", "X-Custom": "1"})
    names = ("authorization", "x-session-id", "x-custom")
    return "; ".join(
        f"{worker.name} {', '.join(name for name in names if worker.seen[0].headers.get(name) in ('Bearer mine', 's', '1')) or 'none'}"
        for worker in router.fleet
    )


for _name, _body in (
    ("a list of two prompts", {"prompt": ["a", "b"]}),
    ("`n` 2", {"prompt": "a", "n": 2}),
):

    @case(STAGES, f"{_name}: who gets it", stages=(1, 1), why=LOCAL)
    def _(router: Router, body: dict[str, Any] = _body) -> str:
        answer = router.ask("POST", "/v1/completions", {"model": "m", **body})
        return f"{answer.status}, {served(router)}"


@case(STAGES, '`max_tokens` "7"', stages=(1, 1), why=AS_SENT)
def _(router: Router) -> str:
    answer = router.complete(max_tokens="7")
    return f"{answer.status}, {served(router)}"


@case(STAGES, "a body that is no JSON", stages=(1, 1), why=PLAIN)
def _(router: Router) -> str:
    answer = router.ask("POST", "/v1/completions", b'{"prompt":')
    return f"{router.refusal(answer)}, {served(router)}"


for _path, _why in (
    ("/v1/responses", ""),
    ("/v1/messages", ""),
    ("/v1/embeddings", ONCE),
    ("/tokenize", ONCE),
    ("/some/path", ONCE),
):

    @case(STAGES, f"`POST {_path}`: who gets it", stages=(1, 1), why=_why)
    def _(router: Router, path: str = _path) -> str:
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 17}
        text = chat if path == "/v1/messages" else {"input": "Hi"}
        answer = router.ask("POST", path, {"model": "m", **text})
        return f"{answer.status}, {served(router)}"


@case(STAGES, "`GET` of another path: who gets it", stages=(1, 1), why=ONCE)
def _(router: Router) -> str:
    return f"{router.ask('GET', '/some/path').status}, {served(router)}"


for _status in (400, 429, 500, 503):

    @case(
        STAGES,
        f"prefill says {_status}, 1 + 1, no retries",
        flags=[*ROUND_ROBIN, "--disable-retries"],
        stages=(1, 1),
        own=True,
        why=AS_IT_CAME,
    )
    def _(router: Router, status: int = _status) -> str:
        router.fleet[0].statuses = [status]
        answer = router.chat()
        return f"{answer.status} of {answer.worker}, {served(router)}"


for _status in (400, 429, 503):

    @case(STAGES, f"decode says {_status}, 1 + 1", stages=(1, 1), own=True)
    def _(router: Router, status: int = _status) -> str:
        router.fleet[1].statuses = [status]
        answer = router.chat()
        return f"{answer.status} of {answer.worker}, {served(router)}"


@case(
    STAGES,
    "decode says 500 once, 1 + 2: the client’s status",
    stages=(1, 2),
    own=True,
    why="another decode worker is tried",
)
def _(router: Router) -> str:
    router.fleet[1].statuses = router.fleet[2].statuses = []
    statuses = []
    for worker in router.fleet[1:]:
        worker.statuses = [500]
        statuses += [router.chat().status, router.chat().status]
        worker.statuses = []
    return ", ".join(str(status) for status in sorted(statuses))


@case(STAGES, "round_robin, 2 + 2, one client: how many each gets of eight", stages=(2, 2))
def _(router: Router) -> str:
    workers = [router.chat().worker for _ in range(8)]
    assert all(name.startswith("d") for name in workers)
    return served(router)


def _load(router: Router, count: int) -> Counter[str]:
    """Who responds to six clients."""
    found: Counter[str] = Counter()
    lock = threading.Lock()

    def client() -> None:
        for _ in range(count):
            worker = router.chat().worker
            with lock:
                found[worker] += 1

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@case(
    STAGES,
    "power_of_two, 1 + 3, one decode worker takes 60 ms: who responds to sixty, and whether a fast one to 1.2 times as many",
    flags=["--policy", "power_of_two"],
    stages=(1, 3),
    own=True,
    why="load is held to the end of the response, not to its head",
)
def _(router: Router) -> str:
    router.fleet[1].delay = 0.06
    found = _load(router, 10)
    assert set(found) <= {"d1", "d2", "d3"}
    fast = max(found["d2"], found["d3"])
    return f"{len(found)} of three decode workers, {'yes' if fast >= 1.2 * found['d1'] else 'no'}"


def _ranks(seen: Iterable[Seen]) -> str:
    found = sorted({request.headers.get("x-data-parallel-rank", "none") for request in seen})
    return ", ".join(found)


@case(
    STAGES,
    "`--intra-node-data-parallel-size 2`: ranks at both in eight requests",
    flags=[*ROUND_ROBIN, "--intra-node-data-parallel-size", "2"],
    stages=(1, 1),
    own=True,
)
def _(router: Router) -> str:
    for _ in range(8):
        router.chat()
    return "; ".join(f"{worker.name} {_ranks(worker.seen)}" for worker in router.fleet)


@case(STAGES, "`GET /readiness`", stages=(1, 2))
def _(router: Router) -> str:
    answer = router.ask("GET", "/readiness")
    return f"{answer.status} {json.dumps(answer.json)}"


@case(STAGES, "`GET /readiness` without decode workers", stages=(1, 1), own=True)
def _(router: Router) -> str:
    router.ask("POST", f"/remove_worker?url={router.fleet[1].url}")
    answer = router.ask("GET", "/readiness")
    return f"{answer.status} {json.dumps({name: answer.json[name] for name in ('prefill', 'decode')})}"


@case(STAGES, "no decode workers: a chat", stages=(1, 1), own=True, why=PLAIN)
def _(router: Router) -> str:
    router.ask("POST", f"/remove_worker?url={router.fleet[1].url}")
    answer = router.chat(later=1)
    return f"{router.refusal(answer)}, {served(router)}"


@case(STAGES, "`GET /workers`: types, and the counts", stages=(1, 2))
def _(router: Router) -> str:
    answer = router.ask("GET", "/workers").json
    types = Counter(worker["worker_type"] for worker in answer["workers"])
    stats = {name: answer["stats"][name] for name in ("prefill_count", "decode_count", "regular_count")}
    return f"{json.dumps(dict(sorted(types.items())))}, {json.dumps(stats)}"


@case(STAGES, "`POST /add_worker`", stages=(1, 1))
def _(router: Router) -> str:
    return router.refusal(router.ask("POST", "/add_worker?url=http://127.0.0.1:9"))


@case(STAGES, "`GET /v1/models`", stages=(1, 1))
def _(router: Router) -> str:
    answer = router.ask("GET", "/v1/models")
    return f"{answer.status} {[model['id'] for model in answer.json['data']]}"
