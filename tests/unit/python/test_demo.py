"""python/vllm_router/demo.py: the command as a process, without a terminal, and small."""

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from vllm_router import demo

SMALL = ("--users", "4", "--turns", "3")


@contextlib.contextmanager
def command(*flags: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-m", "vllm_router.launch_router", "demo", *flags]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_it_compares_the_policies_and_leaves_nothing_running():
    with command(*SMALL, "--policy", "round_robin,least_load", "consistent_hash") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    for policy in ("round_robin", "least_load", "consistent_hash"):
        assert f"{policy}: 12 of 12 responses" in output
        # And a row of the comparison.
        assert re.search(rf"^ *{policy} .*%.* ms .* ms *$", output, re.MULTILINE)
    assert "The median time to first token was" in output
    assert re.search(r"\d+ and \d+ turns went to another worker than the one that had", flat(output))
    ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", output)]
    assert len(ports) == 9
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_with_kv_events_it_compares_claims_with_what_workers_report():
    with command(*SMALL, "--kv-events", "--policy", "round_robin,auto") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    claims = re.findall(
        r"(\w+): what the router claimed to be cached was right for (\d+) of 12", flat(output)
    )
    assert [policy for policy, _ in claims] == ["auto"]
    assert int(claims[0][1]) >= 10  # requests at once may see each other's blocks late


def flat(text: str) -> str:
    """Without the breaks of a narrow terminal."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("status", "tokens"), [("5/7 blocks", 80), ("0/0 blocks", 0), ("1740/1893 bytes", None), (None, None)]
)
def test_claims_are_of_blocks_alone(status, tokens):
    assert demo.claimed_tokens(status) == tokens


def test_with_pd_each_request_is_followed_and_no_blocks_are_left():
    with command("--pd") as process:
        output, errors = process.communicate(timeout=90)
    assert (process.returncode, errors) == (0, "")
    rows = {
        row[1]: row[2].split()
        for row in re.finditer(r"^ *(\S.*?)  +((?:pair|local) .*?) *$", output, re.MULTILINE)
    }
    for request in ("a completion", "a chat, streamed", "its next turn"):
        kind, prefill, _, decode, prefill_ms, _, handoff_ms, _, claim = rows[request]
        assert (kind, prefill[0], decode[0], claim) == ("pair", "P", "D", "redeemed")
        assert float(prefill_ms) > 0
        assert float(handoff_ms) > 0
    assert rows["a list of two prompts"][0] == "local"
    assert rows["left in the hand-over"][-1] == "collected"
    assert {"left during prefill", "left during decode"} <= rows.keys()
    assert "still held: 0; freed by their lease alone: 0" in output
    for port in re.findall(r"127\.0\.0\.1:(\d+)", output):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=5)


def test_keep_prints_a_curl_line_that_works_and_ends_on_a_signal():
    with command(*SMALL, "--policy", "consistent_hash", "--keep") as process:
        line = next(line for line in iter(process.stdout.readline, "") if "curl" in line)
        url, body = re.search(r"(http://\S+)", line)[1], re.search(r"-d '(.*)'", line)[1]
        headers = dict(re.findall(r"-H '(\S+): ([^']*)'", line))
        request = urllib.request.Request(url, body.encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.read().endswith(b"data: [DONE]\n\n")
        json.loads(body)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_signal_ends_it_in_the_middle():
    with command("--users", "4", "--turns", "200") as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_chats_that_take_too_long_are_ended_and_said_so():
    with command("--users", "2", "--turns", "200", "--seconds", "0.5", "--policy", "random") as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "chats unfinished after 0.5 s" in output


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--policy", "consistant_hash"], "consistent_hash"),
        (["--users", "0"], "0 is not from 1 to 256"),
    ],
)
def test_a_mistake_on_the_command_line_is_status_2(flags, message, capsys):
    with pytest.raises(SystemExit) as left:
        demo.main(flags)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


def test_a_port_in_use_is_said_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert demo.main(["--port", str(port)]) == 1
    assert f"127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, 0),
        ([7], 0.5, 7),
        ([7], 0.9, 7),
        ([1, 2, 3, 4], 0.5, 2),
        (range(1, 11), 0.9, 9),
        ([3, 1], 1, 3),
    ],
)
def test_percentile_is_the_smallest_value_that_covers_the_share(values, share, expected):
    assert demo.percentile(list(values), share) == expected


def test_users_have_names_and_never_the_same():
    names = [demo.name_of(number) for number in range(256)]
    assert len(set(names)) == 256
    assert names[:2] == ["Ada", "Ben"]
