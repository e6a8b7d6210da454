"""benchmarks/end_to_end/churn.py in small: no request is lost, and it says so when one is."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.end_to_end import churn as churn_program
from benchmarks.end_to_end.churn import is_excused
from benchmarks.end_to_end.churn_load import dechunked, mistake_of
from benchmarks.end_to_end.churn_sources import Worker

pytest.importorskip("kubernetes")

ROOT = Path(__file__).parents[2]
CHURN = ROOT / "benchmarks" / "end_to_end" / "churn.py"


def churn(path, *arguments):
    done = subprocess.run(
        [sys.executable, CHURN, "--requests", "8000", "--clients", "8", "--json", path, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    assert done.returncode in (0, 1), done.stderr
    (result,) = json.loads(path.read_text())
    return result, done


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("source", ["api", "dns", "file", "kubernetes"])
def test_no_request_is_lost_while_the_fleet_changes(source, tmp_path):
    result, done = churn(tmp_path / "result", "--source", source, "--period", "0.2")
    assert done.returncode == 0, done.stderr
    assert result["ok"] + result["cut"] == result["requests"] == 8000
    assert sum(result["changes"].get(kind, 0) for kind in churn_program.KINDS) >= 2
    assert f"| {source} | 8,000 |" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_requests_are_lost_without_retries(tmp_path):
    # The fifth change of this seed and later ones are crashes.
    result, done = churn(
        tmp_path / "result", "--source", "file", "--period", "0.2", "--", "--disable-retries"
    )
    assert done.returncode == 1
    assert result["lost"]
    assert "churn.py: file: lost: " in done.stderr


def cut(**facts):
    return {"what": "cut", "worker": "http://a:1", "begun": 10.0, "ended": 11.0} | facts


@pytest.mark.parametrize(
    ("failure", "excused"),
    [
        (cut(), True),
        (cut(worker="http://b:1"), False),  # another one than that which crashed
        (cut(worker=""), False),
        (cut(what="status 502"), False),
        (cut(what="closed before a response"), False),
        (cut(begun=12.0, ended=13.0), False),  # long after
        (cut(begun=10.6, ended=10.9), True),  # its end was seen at once, and reported a little later
        (cut(begun=9.0, ended=10.0), False),  # before
    ],
)
def test_only_a_response_of_a_worker_that_ended_may_be_cut(failure, excused):
    assert is_excused(failure, [("http://a:1", 10.4, 10.8)]) == excused


def test_a_connection_to_a_worker_that_has_left_is_noted(monkeypatch):
    monkeypatch.setattr(churn_program, "PROBE_SECS", 0.0)
    monkeypatch.setattr(churn_program, "TRAP_SECS", 0.5)
    worker = Worker("127.0.1.1", churn_program.free_port())

    async def connect_while_it_is_watched():
        watch = asyncio.ensure_future(churn_program.Trap(worker).watch())
        while True:
            try:
                _, writer = await asyncio.open_connection(worker.host, worker.port)
            except ConnectionRefusedError:
                await asyncio.sleep(0)
            else:
                writer.close()
                return await watch

    (late,) = asyncio.run(connect_while_it_is_watched())
    assert 0 < late < 10


def test_chunks_are_put_together():
    assert dechunked(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") == b"abcde"
    assert dechunked(b"3\r\nabcd\r\n0\r\n\r\n") is None
    assert dechunked(b"3\r\nabc\r\n0\r\n\r\nx") is None
    assert dechunked(b"3\r\nabc\r\n") is None


def test_a_response_must_be_whole():
    stream = b'data: {"text": "a"}\n\ndata: {"text": "b"}\n\n'
    assert mistake_of(True, 2, stream + b"data: [DONE]\n\n") == ""
    assert "without [DONE]" in mistake_of(True, 2, stream)
    assert "2 events instead of 3" in mistake_of(True, 3, stream + b"data: [DONE]\n\n")
    whole = b'{"usage": {"completion_tokens": 3}}'
    assert mistake_of(False, 3, whole) == ""
    assert "3 tokens instead of 4" in mistake_of(False, 4, whole)
    assert "no completion" in mistake_of(False, 3, whole[:-1])
