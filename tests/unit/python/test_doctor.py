"""vllm_router.doctor: its findings about machines, settings and workers, and that it shows no secret."""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.worker import RefusingPort, SilentPort
from vllm_router import _core_testing, doctor
from vllm_router.doctor import machine, workers
from vllm_router.doctor.finding import Finding, as_text
from vllm_router.testing import SimulatedWorker

QUIET = ("--port", "0", "--prometheus-port", "0")


@contextlib.contextmanager
def server(bodies: dict[str, bytes], keys: list[str | None] | None = None, key: str = "") -> Iterator[str]:
    """A worker that responds so; 404 elsewhere. `keys` gets each Authorization; /health needs no `key`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if keys is not None:
                keys.append(self.headers["Authorization"])
            body = bodies.get(self.path)
            refused = key and self.path != "/health" and self.headers["Authorization"] != f"Bearer {key}"
            self.send_response(401 if refused else 404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            with contextlib.suppress(OSError):  # the doctor does not read all of it
                self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()
            thread.join()


def examine(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, Any]]:
    """The exit status and the JSON."""
    status = doctor.main([*QUIET, "--json", *flags])
    return status, json.loads(capsys.readouterr().out)


def found(report: dict[str, Any], name: str) -> tuple[str, str]:
    """The status and the text of the one finding of this name."""
    ((status, text),) = {(f["status"], f["found"]) for f in report["findings"] if f["name"] == name}
    return status, text


def test_a_worker_is_described_as_the_router_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    with SimulatedWorker(engine="instant", kv_events_port=0, kv_events_replay_port=0) as worker:
        status, report = examine(capsys, "--worker-urls", worker.url)
    assert status == 0
    assert report["format"] == 1
    assert {tuple(finding) for finding in report["findings"]} == {Finding._fields}
    assert found(report, "engine") == ("ok", "vLLM simulated")
    assert found(report, "models") == ("ok", "simulated-model")
    assert found(report, "block size") == ("ok", "16 tokens")
    assert found(report, "KV events")[1].startswith("on: rank 0 at tcp://127.0.0.1:")


def test_sglang_tells_its_page_size_and_events_in_server_info(capsys: pytest.CaptureFixture[str]) -> None:
    info = {"version": "0.5.9", "page_size": 64, "kv_events": {"endpoint_port_base": 5557, "dp_size": 2}}
    bodies = {
        "/health": b"",
        "/v1/models": b'{"data": [{"id": "m", "owned_by": "sglang"}]}',
        "/server_info": json.dumps(info).encode(),
    }
    with server(bodies) as url:
        _, report = examine(capsys, "--worker-urls", url)
    assert found(report, "engine") == ("ok", "SGLang 0.5.9")
    assert found(report, "block size") == ("ok", "64 tokens")
    assert found(report, "KV events") == ("ok", "on: rank 0 at tcp://*:5557, rank 1 at tcp://*:5558")


def test_events_that_are_wanted_and_absent_are_a_warning_unless_a_flag_names_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with server({"/health": b""}) as url:
        flags = ["--worker-urls", f"{url}@0", "--kv-events", "on"]
        status, report = examine(capsys, *flags)
        assert (status, found(report, "KV events")) == (0, ("warning", "no source is named"))
        _, report = examine(capsys, *flags, "--kv-event-source", f"{url}@0=tcp://127.0.0.1:5557")
        assert found(report, "KV events") == ("ok", "endpoints are those of --kv-event-source")


def test_a_worker_that_refuses_is_an_error_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with RefusingPort() as refusing:
        status, report = examine(capsys, "--worker-urls", refusing.url)
    assert (status, report["status"]) == (1, "error")
    assert found(report, "health") == ("error", "GET /health: connection refused")
    assert all(finding["remedy"] for finding in report["findings"] if finding["status"] == "error")


@pytest.mark.parametrize(
    ("flags", "status", "remedy"),
    [
        (["--api-key", "wrong"], "error", "--api-key is not the engine's"),
        ([], "warning", "set --api-key to the engine's"),
    ],
)
def test_a_key_that_is_missing_or_wrong_is_what_is_found(
    capsys: pytest.CaptureFixture[str], flags: list[str], status: str, remedy: str
) -> None:
    """Row 38: it found no errors, and an unknown engine without models and block size."""
    models = b'{"data": [{"id": "m", "owned_by": "vllm"}]}'
    with server({"/health": b"", "/v1/models": models, "/metrics": b""}, key="engine") as url:
        _, report = examine(capsys, "--worker-urls", url, *flags)
        _, good = examine(capsys, "--worker-urls", url, "--api-key", "engine")
    said = found(report, "key")
    assert said[0] == status
    assert said[1].startswith("returned 401 to GET /v1/models, /version, ")
    assert next(f["remedy"] for f in report["findings"] if f["name"] == "key").startswith(remedy)
    of_worker = {f["name"] for f in report["findings"] if f["section"].startswith("worker ")}
    assert not of_worker & {"engine", "models", "block size"}, "nothing is known of them"
    told = (
        "status of GET: /v1/models 200, /version 404, /kv_event_sources 404, /server_info 404, /metrics 200"
    )
    assert found(good, "endpoints")[1].startswith(told)
    assert found(good, "engine") == ("ok", "vLLM")


@pytest.mark.parametrize("end", ["/v1", "/v1/", "/v1/chat/completions"])
def test_a_url_for_clients_is_pointed_out(capsys: pytest.CaptureFixture[str], end: str) -> None:
    """Row 30: it said "see the log of the worker"."""
    with server({"/health": b""}) as url:
        status, report = examine(capsys, "--worker-urls", url + end)
    assert (status, found(report, "health")) == (1, ("error", "GET /health: status 404"))
    assert f"the worker's URL should end before /v1: {url}" in {f["remedy"] for f in report["findings"]}


def test_a_name_and_brackets_are_hosts_to_listen_on(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("localhost", "[::1]"):
        _, report = examine(capsys, "--host", host)
        assert found(report, "--port")[0] == "ok"


def test_silent_workers_are_asked_in_parallel_and_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    silent = SilentPort()
    try:
        urls = [f"{silent.url}/{number}" for number in range(8)]
        status, report = examine(capsys, "--health-check-timeout-secs", "0.2", "--worker-urls", *urls)
    finally:
        silent.stop()
    assert status == 1
    assert found(report, "health")[1].startswith("GET /health: timed out")
    assert len([f for f in report["findings"] if f["name"] == "health"]) == 8


def test_what_a_hostile_worker_says_is_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = {
        "/health": b"",
        "/v1/models": json.dumps({"data": [{"id": "\x1b[2Jm\n", "owned_by": "\x07"}, 7]}).encode(),
        "/version": json.dumps({"version": "\x1b]0;title"}).encode(),
        "/kv_event_sources": json.dumps({"0": {"endpoint": "\x1b[1m"}, "x": {}}).encode(),
        "/server_info": b"[" * 100_000,
        "/metrics": b"\xff" * (workers.MOST_BYTES + 1_000_000),
    }
    with server(bodies) as url:
        assert doctor.main([*QUIET, "--worker-urls", url]) == 0
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.splitlines())
    assert r"\x1b[2Jm\n" in text


def test_no_secret_is_shown_and_workers_get_their_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: list[str | None] = []
    file = tmp_path / "keys"
    file.write_text("FILESECRET\n")
    with server({"/health": b""}, keys) as url:
        flags = ["--worker-urls", url, "--api-key", "SECRETKEY", "--admin-api-key-file", str(file)]
        for more in ([], ["--json"]):
            doctor.main([*QUIET, *flags, *more])
            text = capsys.readouterr()
            assert "SECRET" not in text.out + text.err
    assert set(keys) == {"Bearer SECRETKEY"}


def test_settings_that_do_not_fit_together_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    status, report = examine(capsys, "--tls-cert-path", "/nowhere")
    assert status == 1
    assert "tls_key_path is not set" in found(report, "settings")[1]


def test_stored_responses_that_say_no_fleet_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Row 20 of the third list: as the start would reject it."""
    stored = ("--response-cache", "--response-cache-backend", "redis", "--redis-url", "redis://127.0.0.1:9")
    status, report = examine(capsys, "--worker-file", "workers.yaml", *stored)
    assert status == 1
    level, detail = found(report, "settings")
    assert level == "error"
    assert "set peer_sync_fleet to the fleet's name" in detail


def test_a_bad_file_of_settings_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "router.yaml"
    file.write_text("polcy: auto\n")
    with pytest.raises(SystemExit) as ended:
        doctor.main(["--config", str(file)])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("vllm-router doctor: error:")


def test_a_port_in_use_and_a_missing_file_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, report = examine(capsys, "--port", port, "--client-api-key-file", "/nowhere")
    assert status == 1
    assert found(report, "--port") == ("error", f"127.0.0.1:{port} cannot be bound: Address already in use")
    assert found(report, "--client-api-key-file")[1].startswith("/nowhere cannot be read: No such file")


def test_limits_that_are_low_are_warnings(tmp_path: Path) -> None:
    for name, text in (
        ("proc/sys/net/core/somaxconn", "128\n"),
        ("proc/sys/net/ipv4/ip_local_port_range", "60000\t60999\n"),
        ("proc/cpuinfo", "flags\t\t: fpu aes avx2\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    findings = {finding.name: finding for finding in machine.findings(str(tmp_path))}
    assert findings["somaxconn"].status == findings["ephemeral ports"].status == "warning"
    assert findings["features"].found == "avx2 aes"


def test_the_text_has_columns_and_a_sum() -> None:
    text = as_text([Finding("a", "x", "ok", "1"), Finding("a", "long", "error", "2\n", "mend it")])
    assert text.splitlines() == [
        "a",
        "  ok       x     1",
        r"  error    long  2\n",
        "                 -> mend it",
        "",
        "errors: 1, warnings: 0",
    ]


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"0": {"endpoint": "tcp://*:1"}, "00": {"endpoint": "tcp://*:2"}, "x": {"endpoint": "a"}},
        {"1": {"endpoint": "a", "publisher": "null"}, "2": {"endpoint": 3}, "3": 4, "256": {"endpoint": "b"}},
        {"2": {"endpoint": "b"}, "1": {"endpoint": "a", "enable_kv_cache_events": False}},
        {"kv_events": {"endpoint_port_base": 65535, "dp_size": 3, "endpoint_host": "h"}},
        {"kv_events": {"endpoint_port_base": True}},
        {"kv_events": {"endpoint_port_base": 5557, "dp_size": 0, "publisher": "zmq"}},
        {"data": [{"id": "m"}, {"id": "a", "parent": "m"}, {"id": 3}, 4]},
    ],
)
def test_events_and_models_are_read_as_the_router_reads_them(report: dict[str, Any]) -> None:
    text = json.dumps(report)
    of_router = [(rank, endpoint) for rank, endpoint, *_ in _core_testing.kv_sources_in_report(text)]
    assert [tuple(source) for source in workers.sources_in_report(report)] == of_router
    of_router = [(rank, at) for rank, at, *_ in _core_testing.kv_sources_in_server_info(text) or ()]
    assert [tuple(source) for source in workers.sources_in_server_info(report)] == of_router
    assert workers.base_models(report) == _core_testing.base_models_in(text)


def test_a_port_that_is_shared_is_not_listened_on(capsys: pytest.CaptureFixture[str]) -> None:
    """It took connections from the router that runs."""
    with socket.socket() as running:
        running.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        running.bind(("127.0.0.1", 0))
        running.listen()
        listened: list[object] = []
        port = str(running.getsockname()[1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "listen", lambda sock, *_: listened.append(sock.getsockname()[1]))
            flags = ["--reuse-port", "--port", port, "--worker-urls", "http://127.0.0.1:1"]
            _, report = examine(capsys, *flags)
    assert found(report, "--port")[0] == "ok"
    assert int(port) not in listened


def test_two_ports_that_are_the_same_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    flags = ["--port", port, "--admin-port", port, "--worker-urls", "http://127.0.0.1:1"]
    _, report = examine(capsys, *flags)
    assert found(report, "--port")[0] == "ok"
    assert found(report, "--admin-port")[0] == "error"


def test_a_salt_that_the_router_makes_is_no_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ["--record-log", str(tmp_path / "log"), "--record-log-salt-file", str(tmp_path / "salt")]
    _, report = examine(capsys, "--worker-urls", "http://127.0.0.1:1", *flags)
    assert found(report, "--record-log-salt-file") == ("ok", f"{tmp_path / 'salt'} will be created")
    assert found(report, "--record-log") == ("ok", f"{tmp_path} can be written")


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("--client-api-key-file", "", "has no key, so every request would be rejected"),
        ("--worker-ca-file", "nothing", "has no certificate in PEM form"),
    ],
)
def test_files_that_the_router_would_not_take_are_errors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, text: str, said: str
) -> None:
    (tmp_path / "file").write_text(text)
    _, report = examine(capsys, "--worker-urls", "https://127.0.0.1:1", flag, str(tmp_path / "file"))
    assert found(report, flag) == ("error", f"{tmp_path / 'file'} {said}")


def test_a_log_that_cannot_be_written_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--record-log", "/nonexistent/log", "--log-dir", "/proc/nothing"]
    _, report = examine(capsys, "--worker-urls", "http://127.0.0.1:1", *flags)
    assert found(report, "--record-log") == ("error", "/nonexistent cannot be written")


def test_a_key_is_sent_as_the_router_sends_it(capsys: pytest.CaptureFixture[str]) -> None:
    keys: list[str | None] = []
    with server({"/health": b""}, keys) as url:
        _, report = examine(capsys, "--api-key", "clé漢", "--worker-urls", url)
    assert found(report, "health")[0] == "ok"
    assert {key.encode("latin-1").decode() for key in keys if key} == {"Bearer clé漢"}


def test_a_file_of_settings_must_be_a_regular_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, kind in (
        (tmp_path / "fifo", "a FIFO"),
        (tmp_path, "a directory"),
        (Path("/dev/zero"), "a device or a socket"),
    ):
        with pytest.raises(SystemExit) as ended:
            doctor.main(["--config", str(path)])
        assert ended.value.code == 2
        assert f"--config {path} is {kind}, and only regular files are read" in capsys.readouterr().err


def test_a_fifo_of_keys_is_an_error_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "keys")
    status, report = examine(capsys, "--client-api-key-file", str(tmp_path / "keys"))
    assert status == 1
    assert found(report, "--client-api-key-file")[1].endswith("keys cannot be read: it is not a file")


def test_endpoints_of_a_worker_are_asked_at_the_same_time(capsys: pytest.CaptureFixture[str]) -> None:
    together = threading.Barrier(len(workers.ENDPOINTS))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in workers.ENDPOINTS:
                with contextlib.suppress(threading.BrokenBarrierError):
                    together.wait(30)  # one after the other, none would be responded to
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            _, report = examine(capsys, "--worker-urls", f"http://127.0.0.1:{listening.server_port}")
        finally:
            listening.shutdown()
            thread.join()
    assert not {finding["name"] for finding in report["findings"]} & set(workers.ENDPOINTS)
    assert not together.broken


def test_a_response_that_is_too_long_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    line = b"sglang:page_size 64\n"
    cut = b"#" * (workers.MOST_BYTES - 2 * len(line)) + b"\n" + line + line  # its last line is cut
    bodies = {"/health": b"", "/version": b" " * (workers.MOST_BYTES + 1), "/metrics": cut}
    with server(bodies) as url:
        status, report = examine(capsys, "--worker-urls", url)
    said = f"the response has more than {workers.MOST_BYTES} bytes, which is the limit; "
    assert status == 0
    assert found(report, "/version") == ("warning", f"GET /version: {said}it was not used")
    assert found(report, "/metrics") == ("warning", f"GET /metrics: {said}only the first part was used")
    assert found(report, "block size") == ("ok", "64 tokens")


def test_the_query_of_the_health_endpoint_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with server({"/health?key=SECRET": b""}) as url:
        _, report = examine(capsys, "--worker-urls", url, "--health-check-endpoint", "/health?key=SECRET")
    assert found(report, "health") == ("ok", "GET /health?...: status 200")


def test_findings_that_cannot_be_written_are_an_error() -> None:
    line = [sys.executable, "-m", "vllm_router.doctor", *QUIET]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_the_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    bodies = {"/health": b"", "/v1/models": '{"data": [{"id": "clé"}]}'.encode()}
    with server(bodies) as url:
        assert doctor.main([*QUIET, "--worker-urls", url]) == 0
    assert rb"cl\xe9" in raw.getvalue()
