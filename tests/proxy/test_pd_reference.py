"""What tests of vllm-project/router ask of prefill/decode pairs, before workers that know nothing of blocks.

tests/reference/pd_cases.py does much of it with both routers.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import Any

import pytest

from tests.fakes.harness import Harness, RunningRouter, error_of
from tests.fakes.wire import Message, request, response
from tests.fakes.worker import Connection, FakeWorker, Gate

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EVENTS = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
USER = {"role": "user", "content": "hi"}
RANK = "x-data-parallel-rank"


def mock(harness: Harness, name: str) -> FakeWorker:
    """Says who it is, and nothing of blocks."""

    def answer(connection: Connection, message: Message) -> None:
        asks_for_events = message.body[:1] == b"{" and json.loads(message.body).get("stream")
        body = EVENTS if asks_for_events else json.dumps({"id": name, "choices": []}).encode()
        kind = "text/event-stream" if asks_for_events else "application/json"
        connection.send(response(200, body, ("X-Worker-Id", name), ("Content-Type", kind)))

    return harness.worker(answer)


def staged(
    harness: Harness,
    prefill: list[FakeWorker],
    decode: list[FakeWorker],
    policy: str = "round_robin",
    ranks: tuple[int, int] = (0, 0),
) -> RunningRouter:
    routing = {
        "prefill_urls": [worker.url for worker in prefill],
        "decode_urls": [worker.url for worker in decode],
        "prefill_data_parallel_size": ranks[0],
        "decode_data_parallel_size": ranks[1],
    }
    return harness.router(routing=routing, policy=policy)


def ask(router: RunningRouter, harness: Harness, path: str, body: Any) -> Message:
    with contextlib.closing(harness.client(router)) as client:
        data = json.dumps(body).encode()
        return client.ask("POST", path, ("Content-Type", "application/json"), body=data)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": "hi", "max_tokens": 17}),
        (COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 17}),
        (CHAT, {"messages": [USER], "max_tokens": 17}),
    ],
)
def test_a_worker_without_transfer_parameters_is_still_half_of_a_pair(harness, path, body, stream):
    prefill, decode = mock(harness, "p"), mock(harness, "d")
    message = ask(
        staged(harness, [prefill], [decode]), harness, path, {"model": "m", "stream": stream, **body}
    )
    assert (message.status, message.get("x-worker-id")) == (200, "d")
    assert message.body == (EVENTS if stream else b'{"id": "d", "choices": []}')
    to_prefill, to_decode = (json.loads(worker.requests[0].body) for worker in (prefill, decode))
    assert (to_prefill["max_tokens"], to_prefill["stream"]) == (1, False)
    assert (to_decode["max_tokens"], to_decode["stream"]) == (17, stream)
    assert (len(prefill.requests), len(decode.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("path", "body", "of_prefill", "of_decode"),
    [
        (CHAT, {"messages": [USER]}, {"max_completion_tokens": 1}, {"max_completion_tokens": 17}),
        (
            COMPLETIONS,
            {"prompt": "hi"},
            {"max_tokens": 1, "min_tokens": 1},
            {"max_tokens": 17, "min_tokens": 5},
        ),
        ("/v1/responses", {"input": "hi"}, {"max_output_tokens": 1}, {"max_output_tokens": 17}),
        (
            "/inference/v1/generate",
            {"token_ids": [1]},
            {"sampling_params": {"max_tokens": 1, "min_tokens": 1}},
            {"sampling_params": {"max_tokens": 17, "min_tokens": 5}},
        ),
    ],
)
def test_prefill_generates_one_token_and_decode_the_clients_number(
    harness, path, body, of_prefill, of_decode
):
    prefill, decode = mock(harness, "p"), mock(harness, "d")
    router = staged(harness, [prefill], [decode])
    assert ask(router, harness, path, {"model": "m", **body, **of_decode}).status == 200
    for worker, expected in ((prefill, of_prefill), (decode, of_decode)):
        got = json.loads(worker.requests[0].body)
        assert {name: got.get(name) for name in expected} == expected


@pytest.mark.parametrize("sizes", [(4, 2), (2, 4)])
def test_each_stage_has_ranks_of_its_own(harness, sizes):
    prefill, decode = mock(harness, "p"), mock(harness, "d")
    router = staged(harness, [prefill], [decode], ranks=sizes)
    for _ in range(8):
        assert ask(router, harness, COMPLETIONS, {"prompt": "hi"}).status == 200
    for worker, size in ((prefill, sizes[0]), (decode, sizes[1])):
        ranks = Counter(message.get(RANK) for message in worker.requests)
        assert ranks == {str(rank): 8 // size for rank in range(size)}


def test_power_of_two_counts_a_decode_worker_to_the_end_of_its_response(harness):
    """The reference forgets the load at the head; then a slow worker gets as many requests as the others."""
    gates: list[Gate] = []

    def answer(connection: Connection, _: Message) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Worker-Id: slow\r\n\r\nh")
        gates[0].wait()
        connection.send(b"ello")

    slow = harness.worker(answer)
    gates.append(slow.gate())
    fast = [mock(harness, "d1"), mock(harness, "d2")]
    router = staged(harness, [mock(harness, "p")], [slow, *fast], policy="power_of_two")
    client = harness.client(router)
    while not slow.requests:
        client.send(request("POST", COMPLETIONS, body=b'{"prompt": "hi"}'))
        if client.read_head().get("x-worker-id") != "slow":
            client.close()
            client = harness.client(router)
    served: Counter[str | None] = Counter()
    for _ in range(30):
        served[ask(router, harness, COMPLETIONS, {"prompt": "hi"}).get("x-worker-id")] += 1
    assert set(served) == {"d1", "d2"}
    gates[0].open()
    router.must_rest()


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "hi", "nobody_knows": {"a": [1e5]}},
        {"messages": [USER | {"later": None}], "nobody_knows": True},
    ],
)
def test_without_workers_unknown_members_are_no_other_error(harness, body):
    path = CHAT if "messages" in body else COMPLETIONS
    prefill = mock(harness, "p")
    message = ask(staged(harness, [prefill], []), harness, path, {"model": "m", **body})
    assert message.status == 503
    assert "1 prefill, 0 decode" in error_of(message)["message"]
    assert prefill.requests == []


def test_ranks_in_urls_are_workers_of_their_own(harness):
    prefill, decode = mock(harness, "p"), mock(harness, "d")
    routing = {
        "prefill_urls": [f"{prefill.url}@3"],
        "decode_urls": [f"{decode.url}@0", f"{decode.url}@1"],
    }
    router = harness.router(routing=routing)
    for _ in range(4):
        assert ask(router, harness, COMPLETIONS, {"prompt": "hi"}).status == 200
    assert [message.get(RANK) for message in prefill.requests] == ["3"] * 4
    assert sorted(str(message.get(RANK)) for message in decode.requests) == ["0", "0", "1", "1"]
