"""cpp/proxy/steps/ and the steps of features: the table, its page, and the step in the log."""

import json
import re
from pathlib import Path

import pytest

from tests.fakes.wire import eventually, request, response
from vllm_router import _core

ROOT = Path(__file__).parents[4]
PROXY = ROOT / "cpp/proxy"


def names() -> list[str]:
    """The names of the steps, in the order of the table."""
    rows = {}
    for source in [*PROXY.glob("steps/*.cc"), *PROXY.glob("*/*_step.cc")]:
        for row, name in re.findall(
            r'^extern constexpr Step (k\w+) = \{\s*\.name = "(\w+)"', source.read_text(), re.M
        ):
            rows[row] = name
    table = (PROXY / "steps/steps.cc").read_text()
    order = re.findall(r"&(k\w+Step)", table)
    assert sorted(order) == sorted(rows), "each row stands in the table once"
    return [rows[row] for row in order]


def test_the_page_has_a_paragraph_for_each_step_in_their_order():
    page = (ROOT / "docs/explanation/life_of_a_request.md").read_text()
    assert re.findall(r"^\*\*(\w+)\.\*\* ", page, re.M) == names()


def whole(connection, _message):
    connection.send(response(200, b"{}"))


def cut(connection, _message):
    connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    connection.close()


CHUNKED = ("Transfer-Encoding", "chunked")
ENDS = {
    "head": ({}, [b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"], "bad_request"),
    "route": ({}, [request("POST", "/health%00")], "nul_in_path"),
    "authorize": ({}, [request("POST", "/x")], "missing_api_key"),
    "validate": ({}, [request("POST", "/health")], "method_not_allowed"),
    "tenant_limit": (
        {"admission_config": "tenant requests_per_minute=1 burst_ms=1 default"},
        [request("POST", "/x")] * 2,
        "tenant_rate_limited",
    ),
    "tenant_tokens": (
        {"admission_config": "tenant tokens_per_minute=1 burst_ms=1 default"},
        [request("POST", "/v1/completions", body=b"{}")] * 2,
        "tenant_tokens_limited",
    ),
    "limit": ({"rate_limit_tokens_per_second": 1}, [request("POST", "/x")] * 2, "rate_limited"),
    "local": ({}, [request("GET", "/admin/nothing")], "not_found"),
    "picker_only": ({"epp_port": 0, "epp_only": True}, [request("POST", "/x")], "path_not_passed"),
    "body": ({}, [request("POST", "/x", CHUNKED) + b"zz\r\n"], "bad_chunk"),
    "upstream": ({}, [request("POST", "/x")], "no_workers"),
    "relay": ({}, [request("POST", "/x")], "worker_closed"),
}


@pytest.fixture
def json_log(written_to):
    """`log = json_log()`: the lines of the access log from then on, once there are so many."""
    _core.configure_log(log_format="json")

    def begin():
        stdout = written_to(1)

        def lines(count):
            eventually(lambda: stdout().count("\n") >= count)
            return [json.loads(line) for line in stdout().splitlines()]

        return lines

    yield begin
    _core.configure_log()


@pytest.mark.parametrize("step", ENDS)
def test_the_log_names_the_step_that_ended_a_request_early(harness, tmp_path, json_log, step):
    log = json_log()
    options, sent, code = ENDS[step]
    if step == "authorize":
        (tmp_path / "keys").write_text("a-key-of-a-client\n")
        options = {"client_api_key_file": str(tmp_path / "keys")}
    workers = [] if step == "upstream" else [harness.worker(cut if step == "relay" else whole)]
    router = harness.router(*workers, access_log=True, **options)
    for one in sent:
        client = harness.client(router)
        client.send(one)
        if step == "relay":
            client.ending()
        else:
            client.read_response()
    *others, last = log(len(sent))
    assert (last["error"], last["step"]) == (code, step)
    assert all("step" not in line for line in others)


def test_a_request_that_goes_well_has_no_such_name(harness, json_log):
    log = json_log()
    client = harness.client(harness.router(harness.worker(whole), access_log=True))
    assert client.ask().status == 200
    (line,) = log(1)
    assert "step" not in line
