"""One exchange as one line, whatever a client put into it."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

MS = 1_000_000
WORKER = testing.WorkerHandle("http://gpu-0:8000@3")

# A streamed chat: head at 1 s on the clock, body 2 ms later, and so on.
CHAT = {
    "wall_us": 1_795_258_237_123_456,  # 2026-11-21 10:50:37.123
    "head_ns": 1000 * MS,
    "body_ns": 1002 * MS,
    "chosen_ns": 1002 * MS + 7_900,
    "connected_ns": 1003 * MS,
    "sent_ns": 1003 * MS + 10_000,
    "answered_ns": 1015 * MS,
    "first_body_ns": 1020 * MS + 999,
    "end_ns": 2500 * MS,
    "request_id": "chatcmpl-abc",
    "client": "10.0.0.7",
    "method": "POST",
    "path": "/v1/chat/completions",
    "route": "/v1/chat/completions",
    "stream": True,
    "status": 200,
    "end": "done",
    "reason": "session_hash",
    "worker": WORKER,
    "attempts": 1,
    "reused": True,
    "bytes_in": 812,
    "bytes_out": 40_960,
    "prompt_tokens": 400,
    "completion_tokens": 160,
    "cached_tokens": 384,
}


def json_line(**fields):
    line = testing.access_line("json", "consistent_hash", **fields)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return json.loads(line.decode())


def text_line(**fields):
    line = testing.access_line("text", "consistent_hash", **fields)
    assert re.fullmatch(rb"[\x20-\x7e]*\n", line), line
    return line.decode().rstrip("\n")


def test_a_line_of_json_has_every_field_that_applies():
    assert json_line(**CHAT) == {
        "ts": "2026-11-21T10:50:37.123Z",
        "seq": 7,
        "request_id": "chatcmpl-abc",
        "client": "10.0.0.7",
        "method": "POST",
        "path": "/v1/chat/completions",
        "route": "/v1/chat/completions",
        "stream": True,
        "status": 200,
        "end": "done",
        "policy": "consistent_hash",
        "reason": "session_hash",
        "worker": "http://gpu-0:8000@3",
        "dp_rank": 3,
        "attempts": 1,
        "reused": True,
        "body_ms": 2.0,
        "decision_us": 7,
        "connect_ms": 0.992,
        "head_ms": 11.99,
        "ttft_ms": 20.0,
        "total_ms": 1500.0,
        "bytes_in": 812,
        "bytes_out": 40960,
        "prompt_tokens": 400,
        "completion_tokens": 160,
        "cached_tokens": 384,
    }


def test_while_conversations_are_held_out_a_line_names_the_arm():
    assert json_line(**CHAT, arm="holdout")["arm"] == "holdout"
    assert json_line(**CHAT, arm="policy")["arm"] == "policy"
    assert "arm" not in json_line(**CHAT, arm="none")


def test_a_line_of_text_reads_from_left_to_right():
    assert text_line(**CHAT) == (
        '2026-11-21 10:50:37.123 10.0.0.7 "POST /v1/chat/completions" 200 done worker=http://gpu-0:8000@3'
        " reason=session_hash ttft=20.000ms total=1500.000ms in=812 out=40960 seq=7 id=chatcmpl-abc"
    )


def test_a_line_names_the_step_that_ended_a_request_early_and_no_other():
    early = CHAT | {"step": "relay", "end": "client_gone"}
    assert json_line(**early)["step"] == "relay"
    assert "step" not in json_line(**CHAT | {"step": "relay"})
    assert json_line(**CHAT | {"step": "body", "error": "body_timeout"})["step"] == "body"


def test_what_does_not_apply_is_left_out():
    # A head that was refused: nobody knows method or path, and no worker was asked.
    refused = {"wall_us": 0, "client": "::1", "status": 400, "error": "bad_request", "rule": "content_length"}
    assert json_line(**refused) == {
        "ts": "1970-01-01T00:00:00.000Z",
        "seq": 7,
        "client": "::1",
        "route": "other",
        "status": 400,
        "end": "done",
        "error": "bad_request",
        "rule": "content_length",
        "bytes_in": 0,
        "bytes_out": 0,
    }
    assert text_line(**refused) == (
        '1970-01-01 00:00:00.000 ::1 "-" 400 done error=bad_request rule=content_length in=0 out=0 seq=7'
    )


def test_a_client_that_left_before_an_answer_has_no_status():
    gone = CHAT | {"status": 0, "end": "client_gone", "answered_ns": 0, "first_body_ns": 0}
    line = json_line(**gone)
    assert {"status", "head_ms", "ttft_ms"}.isdisjoint(line)
    assert line["end"] == "client_gone"
    assert '" - client_gone worker=' in text_line(**gone)


def test_what_the_index_matched_is_told_when_the_policy_has_one():
    line = json_line(**CHAT | {"match": ("blocks", 12, 25)})
    assert (line["matched"], line["match_total"]) == (12, 25)


def test_a_kept_connection_that_turned_out_closed_is_told():
    assert json_line(**CHAT | {"stale_retry": True})["stale_retry"] is True


@given(st.integers(0, 10**17))
def test_the_time_is_that_of_the_head_to_the_millisecond(wall_us):
    day, time = text_line(**CHAT | {"wall_us": wall_us}).split(" ")[:2]
    assert json_line(**CHAT | {"wall_us": wall_us})["ts"] == f"{day}T{time}Z"
    assert time.endswith(f".{wall_us // 1000 % 1000:03d}")


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_times_are_rounded_down_to_microseconds(begin, length):
    line = json_line(**CHAT | {"head_ns": begin + 1, "end_ns": begin + 1 + length})
    assert round(line["total_ms"] * 1000) == length // 1000


TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)


@given(TEXTS, TEXTS)
def test_text_of_a_client_reads_back_from_json(path, request_id):
    line = json_line(**CHAT | {"path": path, "request_id": request_id})
    assert line.get("path", "") == path
    assert line.get("request_id", "") == request_id


@given(st.binary(max_size=100))
def test_bytes_that_are_no_text_still_make_json(request_id):
    line = json_line(**CHAT | {"request_id": request_id})
    try:
        assert line.get("request_id", "") == request_id.decode()
    except UnicodeDecodeError:
        assert "\N{REPLACEMENT CHARACTER}" in line["request_id"]


@given(st.binary(max_size=100))
def test_a_client_cannot_make_a_line_of_its_own(hostile):
    line = text_line(**CHAT | {"path": hostile, "request_id": hostile, "client": hostile, "method": hostile})
    # What stands between our words holds no blank and no quote.
    assert re.fullmatch(
        r'\S+ \S+ \S+ "(-|\S* \S*)" 200 done worker=\S+ reason=\S+ ttft=\S+ total=\S+ in=\S+ out=\S+ seq=7'
        r"( id=\S+)?",
        line,
    )
    assert line.count('"') == 2


@given(st.integers(1000, 1100), st.sampled_from(["a", "é", "→", "🚦"]))
def test_a_long_text_is_cut_between_two_characters(length, letter):
    path = "/" + letter * length
    shown = json_line(**CHAT | {"path": path})["path"]
    assert path.startswith(shown)
    assert len(path.encode()) <= 1024 or 1020 < len(shown.encode()) <= 1024
    assert len(path.encode()) > 1024 or shown == path


def test_there_is_room_for_the_longest_line():
    longest = dict.fromkeys(("request_id", "client", "method", "path", "model", "pair_id"), "\x01" * 5000)
    numbers = dict.fromkeys(
        ("bytes_in", "bytes_out", "prompt_tokens", "completion_tokens", "cached_tokens"), 2**64 - 1
    )
    times = {"wall_us": 2**50, "head_ns": 1, "body_ns": 2**62, "end_ns": 2**62}
    words = dict.fromkeys(("error", "rule", "pd", "pd_local", "claim"), "e" * 5000)
    numbers |= {"pd_uncached_tokens": 2**32 - 1, "pd_saved_tokens": 2**32 - 1}
    times |= {"prefill_ns": 2**60, "prefill_end_ns": 2**62, "handoff_ns": 2**60}
    url = "http://w/" + "w" * 2000
    fields = (
        CHAT
        | longest
        | numbers
        | times
        | words
        | dict.fromkeys(("worker", "prefill_worker"), testing.WorkerHandle(url))
    )
    fields["continued"] = (
        2**32 - 1,
        *["e" * 5000] * 2,
        2**64 - 1,
        "e" * 5000,
        2**62,
        testing.WorkerHandle(url),
    )
    line = json_line(**fields | {"match": ("blocks", 2**64 - 1, 2**64 - 1)})
    assert all(line[name] == "\x01" * 1024 for name in longest)
    assert line["worker"] == line["first_worker"] == url[:1024]
    assert line["bytes_in"] == line["match_total"] == 2**64 - 1
    assert line["error"] == "e" * 64
    assert text_line(**fields).count("\\x01") == 4 * 1024  # no model there


def test_attempts_that_failed_are_named_before_the_last():
    other, last = testing.WorkerHandle("http://gpu-1:8000"), testing.WorkerHandle("http://gpu-0:8000")
    made = [(other, 503, ""), (other, 0, "worker_refused"), (last, 200, "")]
    fields = CHAT | {"retries": 2, "attempts_made": made}
    assert json_line(**fields)["failed"] == [
        {"worker": "http://gpu-1:8000", "status": 503},
        {"worker": "http://gpu-1:8000", "error": "worker_refused"},
    ]
    assert " retries=2 failed=http://gpu-1:8000:503,http://gpu-1:8000:worker_refused " in text_line(**fields)
    assert "failed" not in json_line(**CHAT | {"attempts_made": made[-1:]})


def test_of_many_failed_attempts_four_are_named():
    url = "http://w/" + "w" * 2000
    made = [(testing.WorkerHandle(url), 503, "")] * 9
    longest = dict.fromkeys(("request_id", "client", "method", "path", "model"), "\x01" * 5000)
    line = json_line(**CHAT | longest | {"retries": 8, "attempts_made": made})
    assert [each["worker"] for each in line["failed"]] == [url[:1024]] * 4


def test_a_line_names_the_client_where_clients_are_told_apart():
    client = {"tenant": "search", "priority_class": "default", "claimed_class": "interactive"}
    line = json_line(**CHAT, **client)
    assert (line["tenant"], line["class"], line["claimed_class"]) == ("search", "default", "interactive")
    assert " tenant=search class=default " in text_line(**CHAT, **client)
    assert "dispatch" not in line
    client["dispatch"] = "queued"
    assert json_line(**CHAT, **client)["dispatch"] == "queued"
    assert " class=default dispatch=queued " in text_line(**CHAT, **client)
    assert "evictions" not in json_line(**CHAT, **client)
    client["evictions"] = 2
    assert json_line(**CHAT, **client)["evictions"] == 2
    assert " dispatch=queued evictions=2 " in text_line(**CHAT, **client)
    assert {"tenant", "class", "claimed_class", "dispatch"}.isdisjoint(json_line(**CHAT))
    assert "class" not in text_line(**CHAT)


def test_a_line_says_what_became_of_a_stream_that_its_worker_did_not_end():
    first = testing.WorkerHandle("http://gpu-1:8000")
    line = json_line(**CHAT | {"continued": (2, "lost", "tokens", 23, "whole", 1_500_999, first)})
    assert (line["continued"], line["continue_why"], line["continue_end"]) == (2, "lost", "whole")
    assert (line["continue_gap_ms"], line["first_worker"]) == (1.5, "http://gpu-1:8000")
    cut = CHAT | {"continued": (0, "dead", "", 0, "no_worker", 0, first)}
    assert {"continued", "continue_gap_ms"}.isdisjoint(json_line(**cut))
    assert " continue_end=no_worker " in text_line(**cut)
    names = {"continued", "continue_why", "continue_end", "continue_gap_ms", "first_worker"}
    assert names.isdisjoint(json_line(**CHAT))
    assert "continue" not in text_line(**CHAT)
