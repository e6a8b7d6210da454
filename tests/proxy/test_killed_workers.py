"""kill -9 of a worker with many streams, and what each client has in the end."""

import contextlib
import json
import re
import subprocess
import sys

import pytest

from tests.fakes.continued import CHAT, COMPLETIONS, ON, counts
from tests.fakes.wire import EndedEarlyError, request
from vllm_router.testing import SimulatedWorker

TOKENS, EVENTS_BEFORE = 60, 3
ENGINE = {"engine": "instant", "cache_blocks": 0}
SLOW, FAST = {**ENGINE, "step_ms": 200}, {**ENGINE, "step_ms": 5}  # those that are killed are slow
LETTERS = "abcdefgh" * 15
SCRIPT = json.dumps([{"text": "I look.", "calls": [{"name": "find", "arguments": {"text": LETTERS}}]}])
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
# By kind: the path, and what of the request says that it repeats itself, or that it does not.
REPEATING = {
    "completion": (COMPLETIONS, {"temperature": 0}),
    "chat": (CHAT, {"temperature": 0.0, "response_format": {"type": "json_object"}}),
    "several choices": (CHAT, {"temperature": 0, "n": 3}),
    "seed": (COMPLETIONS, {"temperature": 1, "seed": 5}),
    "tool call": (CHAT, {"temperature": 0, "tools": TOOLS}),
}
SAMPLED = {
    "sampled": (COMPLETIONS, {"temperature": 1}),
    "sampled choices": (CHAT, {"n": 2}),
    "sampled grammar": (CHAT, {"temperature": 0.5, "response_format": {"type": "json_object"}}),
}


class Killable:
    """A simulated worker as a process."""

    def __init__(self, **options):
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm_router.simulate_worker", "--port=0", *flags],
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self):
        self.url = self.process.stdout.readline().split()[-1]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def killable():
    with contextlib.ExitStack() as stack:

        def start(count, **options):
            made = [Killable(**options) for _ in range(count)]
            for worker in made:
                stack.callback(worker.kill)
            for worker in made:
                worker.wait()
            return made

        yield start


def asked(number, path, members):
    text = f"Stream {number} tells of the sea."
    said = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}
    body = {"model": "simulated-model", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    return request(
        "POST", path, ("X-Request-ID", f"number-{number}"), body=json.dumps(body | said | members).encode()
    )


def undisturbed(harness, requests, **options):
    """What a worker responds without a router, and without a pause."""
    with SimulatedWorker(**ENGINE, **options) as worker:
        client = harness.client_at(worker.port)
        bodies = []
        for sent in requests:
            client.send(sent)
            bodies.append(comparable(client.read_response().body))
        client.close()
    return bodies


def comparable(body):
    """Without the clock, which a stream has one time of, and the name of the worker that ended it."""
    assert len(set(re.findall(rb'"created":\d+', body))) <= 1
    body = re.sub(rb'"created":\d+', b'"created":0', body)
    return re.sub(rb'"system_fingerprint":"[^"]*"', b'"system_fingerprint":""', body)


class Stream:
    """A client that has the first events of a stream."""

    def __init__(self, client, sent):
        self.client = client
        client.send(sent)
        self.worker = client.read_head().get("x-vllm-router-worker")

    def read_events(self):
        self.data = b""
        while self.data.count(b"data: ") < EVENTS_BEFORE:
            self.data += self.client.read_chunk()

    def read_rest(self):
        """All that came, and whether it has its end."""
        try:
            while piece := self.client.read_chunk():
                self.data += piece
        except (EndedEarlyError, ConnectionResetError):
            return comparable(self.data), False
        return comparable(self.data), True


def begin(harness, router, requests):
    """Streams in turn: each has its head before the next request is sent."""
    streams = [Stream(harness.client(router), sent) for sent in requests]
    for stream in streams:
        stream.read_events()
    return streams


def test_kill_9_under_forty_streams_leaves_each_client_an_undisturbed_run(harness, killable):
    """Those that no second run repeats are cut, as ever, and have the beginning of one run."""
    kinds = [*REPEATING] * 8 + [*SAMPLED] * 4
    requests = [asked(number, *(REPEATING | SAMPLED)[kind]) for number, kind in enumerate(kinds)]
    wholes = undisturbed(harness, requests, tool_script=SCRIPT)
    workers = killable(1, **SLOW, tool_script=SCRIPT) + killable(3, **FAST, tool_script=SCRIPT)
    router = harness.router(*(w.url for w in workers), retry_budget=1, decision_headers=True, **ON)
    streams = begin(harness, router, requests)
    workers[0].kill()
    lost = dict.fromkeys(REPEATING | SAMPLED, 0)
    for kind, stream, whole in zip(kinds, streams, wholes, strict=True):
        was_lost = stream.worker == workers[0].url
        lost[kind] += was_lost
        data, has_end = stream.read_rest()
        if was_lost and kind in SAMPLED:
            assert not has_end
            assert whole.startswith(data)
        else:
            assert (data, has_end) == (whole, True), kind
    router.must_rest()
    assert sum(lost[kind] for kind in REPEATING) == 10
    assert sum(lost[kind] for kind in SAMPLED) == 3
    assert counts(router, "streams_continued_total") == {"lost": 10}
    assert counts(router, "streams_cut_total") == {}
    assert counts(router, "continue_memory_bytes") == {}


def test_a_second_kill_leaves_whole_runs_and_beginnings_of_them(harness, killable):
    requests = [asked(number, CHAT, {"temperature": 0}) for number in range(40)]
    wholes = undisturbed(harness, requests)
    workers = killable(2, **SLOW) + killable(2, **FAST)
    router = harness.router(*(worker.url for worker in workers), retry_budget=1, decision_headers=True, **ON)
    streams = begin(harness, router, requests)
    workers[0].kill()
    workers[1].kill()  # at once: second runs may be under way there
    cut = 0
    for stream, whole in zip(streams, wholes, strict=True):
        data, has_end = stream.read_rest()
        assert data == whole if has_end else whole.startswith(data)
        cut += not has_end
    router.must_rest()
    assert sum(stream.worker in (workers[0].url, workers[1].url) for stream in streams) == 20
    assert sum(counts(router, "streams_cut_total").values()) == cut
    assert sum(counts(router, "streams_continued_total").values()) == 20 - cut
    assert counts(router, "continue_memory_bytes") == {}
