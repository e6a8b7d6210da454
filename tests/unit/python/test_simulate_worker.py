"""python/vllm_router/simulate_worker.py: the command, as a process."""

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from vllm_router import simulate_worker
from vllm_router.testing import OPTIONS


@contextlib.contextmanager
def command(*flags: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-m", "vllm_router.simulate_worker", *flags]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("simulated worker on http://127.0.0.1:")
    return int(line.rsplit(":", 1)[1])


def ask(port: int, path: str) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("POST" if path.startswith("/v1") else "GET", path, b'{"prompt": "x"}')
        return connection.getresponse().status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_url_serves_and_ends_well_on_a_signal(number):
    with command("--port", "0", "--step-ms", "1") as process:
        assert ask(port_of(process), "/health") == 200
        process.send_signal(number)
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_a_crash_ends_the_process_with_status_1():
    with command("--crash-after", "1", "--engine", "instant") as process:
        port = port_of(process)
        assert ask(port, "/v1/completions") == 200
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            ask(port, "/v1/completions")
        assert process.wait(30) == 1
        assert "crashed" in process.stderr.read()


def test_a_port_in_use_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with command("--port", str(port)) as process:
            assert process.wait(30) == 1
            lines = process.stderr.read().splitlines()
    assert len(lines) == 1
    assert f"127.0.0.1:{port}: Address already in use" in lines[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--step-ms", "-1"], "step_ms is -1"),
        (["--step-ms", "soon"], "invalid float value"),
        (["--step_sm=5"], "--step_sm is not a flag of vllm-router simulate-worker; did you mean --step_ms?"),
        (["--engine", "h200"], "engine is 'h200'; it must be one of h200_32b, "),
        (["--engine", "no.yaml"], "the engine's file no.yaml cannot be read: No such file or directory"),
        (["--tool-script", "no.json"], "'no.json', and this file cannot be read: No such file or directory"),
        (["--tool-script", "[{}]"], "tool_script: turn 1 says nothing; a turn is {"),
        (["extra"], "extra is not a flag of vllm-router simulate-worker; see --help"),
        (["--port", "70000"], "port is 70000; it must be a whole number from 0 to 65535"),
        (["--cache-blocks", "-1"], "cache_blocks is -1; it must be a whole number, 0 or more"),
    ],
)
def test_a_mistake_on_the_command_line_is_status_2(flags, message, capsys):
    with pytest.raises(SystemExit) as left:
        simulate_worker.main(flags)
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_every_option_is_a_flag_in_both_spellings():
    parser = simulate_worker.make_parser()
    assert vars(parser.parse_args([])) == {}  # so that an engine's figures are not overruled by defaults
    for name, option in OPTIONS.items():
        value = type(option.default)(1)
        words = [] if isinstance(option.default, bool) else ["1"]
        for flag in (f"--{name}", f"--{name.replace('_', '-')}"):
            assert vars(parser.parse_args([flag, *words])) == {name: value}
