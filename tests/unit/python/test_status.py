"""vllm_router.status: one screen, and exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.wire import response
from tests.fakes.worker import FakeWorker
from vllm_router import status

DOWN = "http://gpu-1:8000 fails its health checks. 1 other worker takes its requests."
SAID: dict[str, Any] = {
    "sentence": f"{DOWN} And 1 more.",
    "conditions": [
        {"condition": "worker_is_down", "severity": "ticket", "since": 1e9, "text": DOWN},
        {"condition": "peer_sync", "severity": "ticket", "since": 2e9, "text": "Not\x1b[31m heard."},
    ],
    "workers": [
        {
            "url": "http://gpu-0:8000",
            "state": "serves",
            "load": 3,
            "recent": {
                "attempts": 42,
                "responses": {"2xx": 40, "5xx": 2},
                "stream_head_ms": {"p50": 84.1, "p95": 237.8},
                "last_failure": {"seconds_ago": 12.3, "status": 500, "model": "m"},
            },
        },
        {
            "url": "http://gpu-1:8000",
            "state": "unhealthy",
            "load": 0,
            "recent": {
                "attempts": 0,
                "responses": {},
                "last_failure": {"seconds_ago": 300, "status": None, "error": "worker_refused"},
            },
        },
    ],
}


def serving(body: bytes, code: int = 200) -> FakeWorker:
    return FakeWorker(lambda connection, _: connection.send(response(code, body)))


def run(capsys: pytest.CaptureFixture[str], worker: FakeWorker, *flags: str) -> tuple[int, list[str], str]:
    try:
        code = status.main([worker.url, *flags])
    finally:
        worker.stop()
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


def test_trouble_comes_first_and_then_the_workers(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = run(capsys, serving(json.dumps(SAID).encode()))
    assert (code, errors) == (1, "")
    assert lines[0].startswith("ticket, since ")
    assert lines[0].endswith(f" h: {DOWN}")
    assert lines[1].endswith(": Not\\x1b[31m heard.")
    assert [" ".join(line.split()) for line in lines[3:]] == [
        "worker state open requests attempts of the last minute response begins p50, p95 "
        "last 5xx, or no response",
        'http://gpu-0:8000 serves 3 40 2xx, 2 5xx 84 ms, 238 ms 500 for "m", 12 s ago',
        "http://gpu-1:8000 unhealthy 0 no attempts - worker_refused, 5 min ago",
    ]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({"state": "responds_404"}, "responds 404"),
        ({"state": "fails", "model": "a\x1b b"}, 'fails "a\\u001b b"'),
    ],
    ids=["no model", "a model"],
)
def test_the_state_of_a_worker_names_its_model(
    capsys: pytest.CaptureFixture[str], state: dict[str, str], shown: str
) -> None:
    said = {**SAID, "workers": [{**SAID["workers"][0], **state}]}
    _, lines, _ = run(capsys, serving(json.dumps(said).encode()))
    assert lines[-1].split("  ")[1].strip() == shown


def test_a_router_that_is_well_is_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    well = {"sentence": "The worker serves.", "conditions": [], "workers": []}
    assert run(capsys, serving(json.dumps(well).encode())) == (0, ["The worker serves."], "")
    code, lines, _ = run(capsys, serving(json.dumps(well).encode()), "--json")
    assert (code, json.loads("".join(lines))) == (0, well)


def test_the_key_of_a_file_is_sent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret-key\nother\n")
    worker = serving(b"{}", 401)
    code, lines, errors = run(capsys, worker, "--api-key-file", str(tmp_path / "key"))
    assert (code, lines) == (3, [])
    assert errors == (
        f"vllm-router status: {worker.url}/admin/status: status 401; give --api-key-file with a key of "
        "--admin-api-key-file\n"
    )
    (got,) = worker.requests
    assert got.target == "/admin/status"
    assert got.all("authorization") == ["Bearer secret-key"]


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (b"{}", 404, "status 404; is this a vllm-router, and its --admin-port if it has one?"),
        (b"[]", 200, "the response is not a status of vllm-router"),
        (b"no", 200, "the response is not a status of vllm-router"),
    ],
    ids=["404", "other JSON", "no JSON"],
)
def test_what_is_no_status_is_said(
    capsys: pytest.CaptureFixture[str], body: bytes, code: int, said: str
) -> None:
    exit_status, lines, errors = run(capsys, serving(body, code))
    assert (exit_status, lines) == (3, [])
    assert errors.endswith(f": {said}\n")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["ftp://x"], "URL: 'ftp://x' is not a URL"),
        (["--api-key-file", "/nowhere/key"], "--api-key-file /nowhere/key cannot be read: No such file"),
        (["http://x", "--insecure"], "are for https URLs; write https://..."),
        (["--timeout-secs", "0"], "is not a number of seconds"),
    ],
    ids=["URL", "key", "TLS", "time"],
)
def test_mistakes_are_status_2(capsys: pytest.CaptureFixture[str], flags: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        status.main(flags)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
