"""cpp/proxy/telemetry/traffic_log_line.h: one request as a line of docs/reference/record_log.md."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

KEY = bytes(range(16))
PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "record_log.md").read_text()
CHAT = {
    "wall_us": 1_763_800_000_113_482,
    "route": "/v1/chat/completions",
    "status": 200,
    "prompt": ([11, 22, 33, 44], 60, "user:ann"),
    "prompt_tokens": 50,
    "completion_tokens": 12,
}


def text(key=KEY, block_size=16, **fields):
    return testing.record_line(list(key), block_size, **(CHAT | fields))


def line(key=KEY, block_size=16, **fields):
    written = text(key, block_size, **fields)
    assert written.endswith("}\n")
    assert written.count("\n") == 1
    return json.loads(written)


def names(row):
    digits = row["blocks"]
    return [digits[i : i + 16] for i in range(0, len(digits), 16)]


def test_a_line_has_the_fields_of_the_page_in_its_order():
    documented = re.findall(r"^\| `(\w+)` \|", PAGE.split("## Request")[1], re.MULTILINE)
    of_agent = line(prompt=([1], 16, "header:x-session-id:leaf"), names=("leaf", "root", "agent"))
    assert list(of_agent) == documented


def test_a_line_is_written_as_the_page_shows_one():
    shown = next(row for row in PAGE.splitlines() if row.startswith('{"arrival_s"'))
    form = re.sub(r"[0-9a-f]{16,}|\d+(\.\d{6})?", "N", shown)
    assert re.sub(r"[0-9a-f]{16,}|\d+(\.\d{6})?", "N", text().strip()) == form


def test_the_head_names_block_size_and_salt():
    head = json.loads(testing.record_line(list(KEY), 32))
    assert list(head) == ["vllm_router_record_log", "block_size", "salt_id"]
    assert (head["vllm_router_record_log"], head["block_size"]) == (1, 32)
    other = json.loads(testing.record_line([1] * 16, 32))
    assert head["salt_id"] != other["salt_id"]
    assert head == json.loads(testing.record_line(list(KEY), 32))


def test_what_a_line_says():
    row = line()
    assert row["arrival_s"] == 1763800000.113482
    assert (row["input_tokens"], row["output_tokens"], row["status"]) == (50, 12, 200)
    blocks = testing.rename_values(list(KEY), 1, [11, 22, 33, 44])
    assert names(row) == [f"{name:016x}" for name in blocks]
    session = testing.rename_values(list(KEY), 2, [testing.xxh3("user:ann")])
    assert row["session"] == f"{session[0]:016x}"


def test_parents_and_agents_are_named_as_their_own_requests_are():
    def row(prompt, session):
        return line(prompt=([1], 16, prompt), names=session)

    parent = row("header:x-session-id:root", ("root", "", ""))
    child = row("header:x-session-id:leaf", ("leaf", "root", ""))
    assert (child["parent"], child["session"]) == (
        parent["session"],
        row("header:x-session-id:leaf", ("", "", ""))["session"],
    )
    assert {"parent", "agent"} & parent.keys() == set()
    agents = [row("header:x-session-id:root", ("root", "", agent))["agent"] for agent in ("a", "a", "b")]
    assert agents[0] == agents[1] != agents[2]
    assert "parent" not in row("user:ann", ("leaf", "root", ""))  # the parent's key is not known


def test_no_session_is_no_field():
    assert "session" not in line(prompt=([1], 16, ""))


@given(st.integers(0, 2**53))
def test_the_time_has_microseconds(wall_us):
    written = re.search(r'"arrival_s": (\d+)\.(\d{6}),', text(wall_us=wall_us))
    assert int(written[1] + written[2]) == wall_us


def test_other_secrets_share_nothing():
    mine, other = line(), line(key=bytes(16))
    assert not set(names(mine)) & set(names(other))
    assert mine["session"] != other["session"]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(0, 400), st.sampled_from([1, 16, 128]))
def test_a_prompt_has_no_more_blocks_than_its_tokens_fill(blocks, tokens, block_size):
    row = line(prompt=(blocks, 1, ""), prompt_tokens=tokens, block_size=block_size)
    assert row["input_tokens"] == max(1, tokens)
    kept = names(row)
    assert len(kept) == min(len(blocks), -(-row["input_tokens"] // block_size))
    assert kept == names(line(prompt=(blocks, 1, ""), prompt_tokens=10_000))[: len(kept)]


def test_what_the_worker_did_not_count_is_estimated():
    unsaid = {"prompt_tokens": None, "completion_tokens": None}
    assert line(**unsaid)["input_tokens"] == 60
    assert line(**unsaid, stream=True, events=31, bytes_out=9000)["output_tokens"] == 31
    assert line(**unsaid, bytes_out=401)["output_tokens"] == 101
    assert line(**unsaid, bytes_out=401, route="/v1/embeddings")["output_tokens"] == 0


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("done", 200),
        ("no_done", 200),
        ("client_gone", 499),
        ("slow_client", 499),
        ("worker_error", 500),
        ("worker_aborted", 500),
        ("worker_gone", 502),
        ("drain", 503),
        ("timeout", 504),
    ],
)
def test_an_answer_that_broke_off_is_none(end, status):
    assert line(end=end)["status"] == status


def test_an_answer_s_own_status_is_told():
    assert line(status=503)["status"] == 503


def test_nothing_else_of_the_request_is_in_the_line():
    said = text(request_id="id-1", client="10.0.0.7", path="/v1/chat/completions", model="llama", bytes_in=77)
    for secret in ("id-1", "10.0.0.7", "/v1", "llama", "77", "ann", "user"):
        assert secret not in re.sub(r'"(blocks|session)": "[^"]*"', "", said)
    assert f"{11:016x}" not in said
