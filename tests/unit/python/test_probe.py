"""vllm_router.probe and vllm_router._http_get: exit statuses, and what the one line says."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.authority import Authority
from tests.fakes.worker import Connection, FakeWorker, RefusingPort, SilentPort
from vllm_router import probe
from vllm_router._http_get import NoReplyError, get
from vllm_router.router import Router


@contextlib.contextmanager
def serving(**options: Any) -> Iterator[FakeWorker]:
    worker = FakeWorker(**options)
    try:
        yield worker
    finally:
        worker.stop()


def answering(data: bytes, *, close: bool = True) -> contextlib.AbstractContextManager[FakeWorker]:
    """A server that sends these bytes after the head of a request, and closes or waits."""

    def script(connection: Connection) -> None:
        connection.read_request()
        connection.send(data)
        if not close:
            connection.ending()

    return serving(script=script)


def seen(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """What a failing probe says."""
    assert probe.main(flags) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def test_a_router_that_is_ready_is_status_0_and_no_word(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as worker:
        assert probe.main(["--url", worker.url]) == 0
        assert worker.requests[0].target == "/readiness"
    assert capsys.readouterr() == ("", "")


def test_a_router_without_workers_is_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    with Router(worker_urls=[]).serve() as server:
        line = seen(capsys, "--url", server.url)
        assert line == f"vllm-router probe: {server.url}/readiness: status 503"
        assert probe.main(["--url", server.url, "--path", "/liveness"]) == 0


def test_the_environment_names_the_url_and_a_flag_wins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as worker, RefusingPort() as refusing:
        monkeypatch.setenv("VLLM_ROUTER_PROBE_URL", worker.url)
        assert probe.main([]) == 0
        assert "connection refused" in seen(capsys, "--url", refusing.url)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "connection closed before a response"),
        (b"\x1b[31mgarbage\r\n\r\n", r"response is not HTTP: it begins with '\x1b[31mgarbage"),
        (b"HTTP/1.1 302 Found\r\nLocation: /liveness\r\nContent-Length: 0\r\n\r\n", "status 302"),
    ],
)
def test_what_is_no_200_is_told(data: bytes, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(data) as worker:
        line = seen(capsys, "--url", worker.url)
    assert sentence in line
    assert line.isprintable()


def test_a_server_that_never_responds_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(b"HTTP/1.1 200", close=False) as worker:
        line = seen(capsys, "--url", worker.url, "--timeout-secs", "0.2")
    assert "timed out: no complete response within 0.2 s" in line


def test_a_server_that_sends_a_byte_now_and_then_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    def script(connection: Connection) -> None:
        connection.read_request()
        for byte in b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000:
            connection.send(bytes([byte]))
            time.sleep(0.05)  # the pace is what is tested

    with serving(script=script) as worker:
        assert "timed out" in seen(capsys, "--url", worker.url, "--timeout-secs", "0.3")


def test_a_port_that_lets_nobody_in_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    silent = SilentPort()
    try:
        assert "timed out" in seen(capsys, "--url", silent.url, "--timeout-secs", "0.2")
    finally:
        silent.stop()


def test_no_more_of_a_body_is_read_than_asked_for() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\n" + b"x" * 5000) as worker:
        assert get(worker.url, "/", 30, most_bytes=1000).body == b"x" * 1000


def test_a_body_that_ends_early_is_no_reply() -> None:
    with (
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab") as worker,
        pytest.raises(NoReplyError, match="in the middle"),
    ):
        get(worker.url, "/", 30, most_bytes=1000)


def test_a_certificate_is_verified_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    with serving(tls=authority.server("127.0.0.1")) as worker:
        assert "TLS failed" in seen(capsys, "--url", worker.url)
        assert probe.main(["--url", worker.url, "--insecure"]) == 0
        assert probe.main(["--url", worker.url, "--ca-file", str(authority.path)]) == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--url", "http://user:PASSWORD@a:1"], "is not a URL like"),
        (["--url", "ftp://a"], "is not a URL like"),
        (["--path", "readiness"], "is not a path like /readiness"),
        (["--timeout-secs", "nan"], "is not a number of seconds"),
        (["--insecure"], "are for https URLs"),
        (["--cert-file", "a", "--key-file", "b"], "are for https URLs"),
        (["--url", "https://a", "--cert-file", "a"], "and one is missing; give both or neither"),
        (["--path", "x\x1b[2J?key=PASSWORD"], "is not a path like /readiness"),
        (["--url", "https://a", "--ca-file", "/nowhere"], "--ca-file /nowhere cannot be used: No such file"),
    ],
)
def test_a_mistake_is_status_2(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        probe.main(flags)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert "PASSWORD" not in error


def test_neither_the_extension_nor_numpy_is_imported() -> None:
    program = (
        "import sys, vllm_router.__main__ as command\n"
        "command.main(['probe', '--url', 'http://127.0.0.1:1'])\n"
        "print([name for name in ('numpy', 'vllm_router._core', 'yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_router_that_asks_for_a_certificate_is_shown_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    own = authority.certify("127.0.0.1")
    shown = authority.certify("probe")
    with Router(worker_urls=[]).serve(
        tls_cert_path=own.cert, tls_key_path=own.key, tls_client_ca_file=authority.path
    ) as server:
        flags = ["--url", server.url, "--path", "/liveness", "--ca-file", authority.path]
        assert "TLS failed" in seen(capsys, *flags)
        assert probe.main([*flags, "--cert-file", shown.cert, "--key-file", shown.key]) == 0


def test_files_that_cannot_be_used_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(tmp_path)
    one, other = authority.certify("one"), authority.certify("other")
    (tmp_path / "text").write_text("nothing")
    os.mkfifo(tmp_path / "fifo")
    for flags, sentence in (
        (["--ca-file", str(tmp_path / "text")], "text cannot be used: it has no certificate in PEM form"),
        (["--ca-file", str(tmp_path / "fifo")], "fifo cannot be used: it is not a regular file"),
        (["--cert-file", one.cert, "--key-file", other.key], "give a PEM certificate with its own key"),
        (["--ca-file", "/no\x1b[2Jwhere"], r"--ca-file /no\x1b[2Jwhere cannot be used: No such file"),
    ):
        with pytest.raises(SystemExit) as ended:
            probe.main(["--url", "https://127.0.0.1:1", *flags])
        assert ended.value.code == 2
        assert sentence in capsys.readouterr().err


def test_a_query_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with RefusingPort() as refusing:
        line = seen(capsys, "--url", refusing.url, "--path", "/readiness?key=SECRET")
    assert line == f"vllm-router probe: {refusing.url}/readiness?...: connection refused"


def test_a_host_that_is_no_name_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert seen(capsys, "--url", "http://a..b:1").endswith("host 'a..b' not found: it is not a valid name")
