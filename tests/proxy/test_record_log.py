"""--record-log: traffic through a real server, and what its file is good for afterwards."""

import dataclasses
import itertools
import json
import re
import signal
from typing import Any

import numpy as np
import pytest

from tests.fakes.wire import PATIENCE, chunked, eventually, request, response
from tests.proxy.test_access_log import command
from vllm_router import _core_testing as testing
from vllm_router.replay import Fleet, read_trace, run

CHAT = "/v1/chat/completions"
SYSTEM = "You are the keeper of a lighthouse. Answer kindly and in whole sentences, whoever asks. " * 4
POLICIES = ("round_robin", "least_load", "consistent_hash", "cache_aware", "vllm_cache_aware", "auto")


def chat(session: str, *turns: str) -> bytes:
    messages = [{"role": "system", "content": SYSTEM}, *({"role": "user", "content": turn} for turn in turns)]
    return json.dumps({"model": "m", "user": session, "messages": messages}).encode()


def turn(session: str, number: int) -> str:
    return f"{session} asks its question number {number}, " * 8


def answer(connection: Any, message: Any) -> None:
    """As an engine of 4 bytes a token says it."""
    tokens = len(message.body) // 4
    connection.send(
        response(200, json.dumps({"usage": {"prompt_tokens": tokens, "completion_tokens": 9}}).encode())
    )


def lines(path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def requests(path) -> list[dict[str, Any]]:
    return [row for row in lines(path) if "arrival_s" in row]


def blocks(row) -> list[str]:
    return re.findall(".{16}", row["blocks"])


def counted(router, result: str) -> int:
    found = re.search(
        rf'^vllm_router_record_log_lines_total{{result="{result}"}} (\d+)', router.server.metrics_text(), re.M
    )
    return int(found[1])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "traffic.jsonl"


@pytest.fixture
def record(harness, path, tmp_path):
    """A server that records into `path`, under the secret of `salt`."""

    def start(*workers: Any, policy: str = "round_robin", salt: str | None = "salt", **options: Any) -> Any:
        secret = {} if salt is None else {"record_log_salt_file": str(tmp_path / salt)}
        return harness.router(*workers, policy=policy, record_log=str(path), **secret, **options)

    return start


def converse(harness, router, sessions: str = "abc", turns: int = 4) -> None:
    client = harness.client(router)
    for number in range(1, turns + 1):
        for session in sessions:
            body = chat(session, *(turn(session, each) for each in range(number)))
            assert client.ask("POST", CHAT, body=body).status == 200


def end(router) -> None:
    router.shutdown()
    router.must_end()


@pytest.mark.parametrize("policy", POLICIES)
def test_recorded_traffic_can_be_replayed(harness, record, path, policy):
    router = record(harness.worker(answer), harness.worker(answer), policy=policy)
    converse(harness, router)
    harness.client(router).must_be_open()
    for client in harness._clients:
        client.close()
    end(router)

    trace = read_trace(path, strict=True)
    assert len(trace) == 12
    assert trace.session_ids is not None
    assert len(set(trace.session_ids.tolist())) == 3
    assert trace.output_tokens.tolist() == [9] * 12
    assert trace.ideal_hit_share > 0.5
    # At an even pace: a pause here would make a burst of turns that arrive before those they continue.
    trace = dataclasses.replace(trace, arrival_s=np.arange(12) / 5)
    rows = run(trace, ["round_robin", "vllm_cache_aware"], Fleet(workers=2, cache_tokens=100_000), rate=5.0)
    hits = {row["policy"]: row["hit_share"] for row in rows}
    assert hits["vllm_cache_aware"] > hits["round_robin"]


def test_every_turn_begins_with_the_blocks_of_the_turn_before(harness, record, path):
    router = record(harness.worker(answer))
    converse(harness, router, sessions="a")
    eventually(lambda: counted(router, "written") == 4)
    rows = requests(path)
    for before, after in itertools.pairwise(rows):
        assert blocks(after)[: len(blocks(before))] == blocks(before)
        assert len(blocks(after)) > len(blocks(before)) > 5


def test_the_same_prompts_have_the_same_blocks_after_a_restart_under_another_policy(harness, record, path):
    worker = harness.worker(answer)
    for policy, salt in (
        ("round_robin", "one"),
        ("cache_aware", "one"),
        ("auto", "one"),
        ("auto", "two"),
        ("auto", None),
    ):
        router = record(worker, policy=policy, salt=salt)
        converse(harness, router, sessions="a", turns=1)
        eventually(lambda router=router: counted(router, "written") == 1)
    rows = requests(path)
    first, second, third, salted, unsalted = (set(blocks(row)) for row in rows)
    assert first == second == third
    assert not first & salted
    assert not (first | salted) & unsalted
    assert len({row["session"] for row in rows}) == 3
    assert len({row["salt_id"] for row in lines(path) if "salt_id" in row}) == 3


def test_nothing_of_the_contents_is_in_the_file(harness, record, path):
    router = record(harness.worker(answer), policy="vllm_cache_aware")
    body = chat("ann", "my secret question")
    headers = (("X-Session-ID", "secret-session"), ("Authorization", "Bearer secret-key"))
    harness.client(router).ask("POST", CHAT, *headers, body=body)
    eventually(lambda: counted(router, "written") == 1)
    text = path.read_text()
    for secret in ("secret", "lighthouse", "ann", CHAT, "127.0.0.1", '"m"'):
        assert secret not in text
    unsalted, _tokens, _session = testing.read_prompt(
        router.core, body=body, path=CHAT, headers=[("X-Session-ID", "secret-session")]
    )
    assert len(unsalted) == len(blocks(requests(path)[0])) > 5
    for name in [*unsalted, testing.xxh3("header:x-session-id:secret-session")]:
        assert f"{name:016x}" not in text
        assert name.to_bytes(8, "little").hex() not in text


def test_a_client_that_leaves_is_recorded_as_such(harness, record, path):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = record(worker)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=chat("a", "Hello")))
    router.wait_for_load(1)
    client.close()
    eventually(lambda: counted(router, "written") == 1)
    (row,) = requests(path)
    assert row["status"] == 499
    assert blocks(row)


def test_who_was_refused_is_recorded_as_such(harness, record, path):
    router = record(harness.refusing_port(), rate_limit_tokens_per_second=1)
    client = harness.client(router)
    statuses = [
        client.ask("POST", CHAT, ("X-User-ID", "u"), body=chat("a", "Hello")).status for _ in range(5)
    ]
    assert set(statuses) == {429, 502}
    eventually(lambda: counted(router, "written") == 5)
    rows = requests(path)
    assert [row["status"] for row in rows] == statuses
    assert [bool(blocks(row)) for row in rows] == [status == 502 for status in statuses]
    assert len({row["session"] for row in rows}) == 1


def test_what_is_no_work_for_a_model_is_not_recorded(harness, record, path):
    router = record(harness.worker())
    client = harness.client(router)
    for target in ("/tokenize", "/version", "/liveness", "/get_loads"):
        client.ask("POST" if target == "/tokenize" else "GET", target)
    client.ask("POST", "/v1/embeddings", body=b'{"input": "x"}')
    eventually(lambda: counted(router, "written") == 1)
    assert len(requests(path)) == 1


def test_a_stream_without_usage_has_about_as_many_tokens_as_events(harness, record, path):
    event = b'data: {"choices":[{"delta":{"content":"word %03d "}}]}\n\n'
    pieces = [event % number for number in range(100)] + [b"data: [DONE]\n\n"]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    router = record(harness.worker(lambda connection, _: connection.send(head, chunked(*pieces))))
    assert harness.client(router).ask("POST", CHAT, body=chat("a", "Hello")).status == 200
    eventually(lambda: counted(router, "written") == 1)
    assert requests(path)[0]["output_tokens"] == 100


def test_a_long_body_is_read_though_the_policy_needs_none_and_arrives_whole(harness, record, path):
    worker = harness.worker(answer)
    router = record(worker)
    body = chat("a", "x" * 300_000)
    assert harness.client(router).ask("POST", CHAT, body=body).status == 200
    assert worker.requests[0].body == body
    eventually(lambda: counted(router, "written") == 1)
    assert len(blocks(requests(path)[0])) > 4500


def test_a_body_beyond_what_is_read_is_recorded_by_its_beginning(harness, record, path):
    worker = harness.worker(answer)
    router = record(worker)
    body = chat("a", "x" * (9 << 20))
    assert harness.client(router).ask("POST", CHAT, body=body).status == 200
    assert worker.requests[0].body == body
    eventually(lambda: counted(router, "written") == 1)
    assert len(blocks(requests(path)[0])) == (4 << 20) // 64  # --routing-text-limit


def test_the_file_may_be_moved_away_and_lines_on_a_full_disk_are_counted(harness, record, path, tmp_path):
    router = record(harness.worker(answer))
    assert router.server.has_something_to_reload
    client = harness.client(router)
    client.ask("POST", CHAT, body=chat("a", "one"))
    eventually(lambda: counted(router, "written") == 1)
    moved = path.rename(tmp_path / "moved")
    path.symlink_to("/dev/full")
    router.server.reload()
    for _ in range(3):
        assert client.ask("POST", CHAT, body=chat("a", "two")).status == 200
    eventually(lambda: counted(router, "lost") == 3)
    path.unlink()
    router.server.reload()
    client.ask("POST", CHAT, body=chat("a", "three"))
    eventually(lambda: counted(router, "written") == 2)
    assert len(requests(moved)) == len(requests(path)) == 1
    assert lines(path)[0] == lines(moved)[0]
    path.rename(tmp_path / "moved again")
    path.mkdir()
    router.server.reload()  # reports at once
    counted_reloads = 'vllm_router_reloads_total{file="record_log",result="%s"} %d\n'
    for result, count in (("ok", 2), ("failed", 1)):
        assert counted_reloads % (result, count) in router.server.metrics_text()


def test_a_hangup_opens_the_file_again(harness, path, tmp_path):
    worker = harness.worker(answer)
    arguments = ("--worker-urls", worker.url, "--policy", "round_robin", "--record-log", str(path))
    with command(*arguments) as (process, port, _stdout):
        client = harness.client_at(port)
        client.ask("POST", CHAT, body=chat("a", "one"))
        eventually(lambda: len(requests(path)) == 1)
        moved = path.rename(tmp_path / "moved")
        process.send_signal(signal.SIGHUP)
        asked = 1

        def is_there_again() -> bool:
            nonlocal asked
            client.ask("POST", CHAT, body=chat("a", "two"))
            asked += 1
            return path.exists()

        eventually(is_there_again)
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert len(requests(moved)) + len(requests(path)) == asked


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"record_log": "/nowhere/log"},
            "--record-log /nowhere/log cannot be written: No such file or directory",
        ),
        (
            {"record_log": "LOG", "record_log_salt_file": "/nowhere/s"},
            "--record-log-salt-file /nowhere/s cannot be",
        ),
    ],
)
def test_a_file_that_cannot_be_had_ends_the_start(harness, path, options, sentence):
    options = {name: str(path) if value == "LOG" else value for name, value in options.items()}
    with pytest.raises(OSError, match=sentence):
        harness.router(harness.worker(), **options)
