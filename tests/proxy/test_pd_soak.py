"""Hundreds of pairs at once; clients leave and transfers fail at random: nothing is mixed up or left."""

import contextlib
import json
import os
import random
import threading
from collections import Counter
from typing import Any

from tests.fakes.wire import EndedEarlyError, eventually, request
from vllm_router.testing import SimulatedWorker

REQUESTS = int(os.environ.get("VLLM_ROUTER_TEST_PAIRS", "400"))
CLIENTS = 8
ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20, "threads": 2}
COMPLETIONS = "/v1/completions"


def prompt_of(number: int) -> str:
    return f"{number} the permission users. offer, developers license " * (1 + number % 20)


def body_of(number: int, dice: random.Random) -> dict[str, Any]:
    body: dict[str, Any] = {"prompt": prompt_of(number), "max_tokens": 1 + number % 8}
    if dice.random() < 0.1:
        body["prompt"] = [body["prompt"], "another one"]
    return body | {"stream": dice.random() < 0.5}


def texts_of(body: bytes) -> list[str]:
    """Of a response or a stream, by the choice."""
    texts: Counter[int] = Counter()
    written = {}
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")] or [body]
    for event in events:
        for choice in json.loads(event)["choices"]:
            written[choice["index"]] = written.get(choice["index"], "") + choice["text"]
            texts[choice["index"]] += 1
    return [written[index] for index in sorted(written)]


def test_nothing_is_mixed_up_and_nothing_is_left(harness):
    with contextlib.ExitStack() as stack, harness.keeping_descriptors():

        def start(**options: Any) -> SimulatedWorker:
            return stack.enter_context(SimulatedWorker(engine="instant", **options))

        prefills = [start(stage="prefill", cache_blocks=4096) for _ in range(2)]
        decodes = [
            start(stage="decode", kv_load_failure_policy=policy) for policy in ("fail", "recompute", "fail")
        ]
        single = start()
        stages = {
            "prefill_urls": [worker.url for worker in prefills],
            "decode_urls": [worker.url for worker in decodes],
        }
        router = harness.router(routing=stages, **ON)
        alone = harness.router(single)
        outcomes: Counter[str] = Counter()
        wrong: list[Any] = []
        lock = threading.Lock()

        def run(index: int) -> None:
            dice = random.Random(index)
            reference = harness.client(alone)
            client = harness.client(router)
            for number in range(index, REQUESTS, CLIENTS):
                body = json.dumps(body_of(number, dice)).encode()
                if dice.random() < 0.05:
                    decodes[dice.randrange(len(decodes))].fail_handshakes(1)
                expected = texts_of(reference.ask("POST", COMPLETIONS, body=body).body)
                client.send(request("POST", COMPLETIONS, body=body))
                if dice.random() < 0.3:
                    with contextlib.suppress(EndedEarlyError, OSError):
                        for _ in range(dice.randrange(3)):
                            client.socket.recv(dice.randrange(1, 400))
                    client.close()
                    client = harness.client(router)
                    outcome = "left"
                else:
                    message = client.read_response()
                    outcome = str(message.status)
                    if message.status == 200 and texts_of(message.body) != expected:
                        wrong.append((number, body))
                with lock:
                    outcomes[outcome] += 1

        threads = [threading.Thread(target=run, args=(index,)) for index in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        router.must_rest()
        assert wrong == []
        assert outcomes.total() == REQUESTS
        assert set(outcomes) == {"200", "left"}, outcomes
        for worker in prefills + decodes:
            counters = worker.kv_counters()
            assert (counters.double_pull, counters.late_pull, counters.unknown_pull) == (0, 0, 0)
            assert (counters.killed, counters.duplicate_members) == (0, 0)
        for worker in decodes:
            eventually(lambda worker=worker: worker.kv_counters().leaked_at_decode == 0)
