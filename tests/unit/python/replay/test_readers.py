"""python/vllm_router/replay/readers.py: four formats, compressed or not, whole or not."""

import contextlib
import gzip
import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router.replay.readers import FORMATS, read_trace, recognise, tick_of
from vllm_router.replay.trace import TraceError

SLICE = Path(__file__).parents[3] / "data" / "mooncake_conversation_200.jsonl"

MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 27, "input_length": 512, "output_length": 0, "hash_ids": [0]},
    {"timestamp": 1500, "input_length": 2000, "output_length": 9, "hash_ids": [0, 1, 2, 3]},
]
BAILIAN = [
    {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 33, "output_length": 2,
     "type": "text", "turn": 1, "hash_ids": [5, 6, 7]},
    {"chat_id": 2, "parent_chat_id": -1, "timestamp": 1.25, "input_length": 32, "output_length": 2,
     "type": "text", "turn": 1, "hash_ids": [9, 6]},
    {"chat_id": 3, "parent_chat_id": 1, "timestamp": 2, "input_length": 64, "output_length": 2,
     "type": "text", "turn": 2, "hash_ids": [5, 6, 8, 7]},
]  # fmt: skip
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2024-05-10 00:00:00.009930+00:00,128,0
"""
HEAD = {"vllm_router_record_log": 1, "block_size": 16, "salt_id": "a1"}
RECORDS = [
    HEAD,
    {"arrival_s": 1700000002.5, "input_tokens": 40, "output_tokens": 7, "blocks": "00000000000000ff" * 2,
     "session": "000000000000000a", "status": 200},
    {"arrival_s": 1700000001.0, "input_tokens": 16, "output_tokens": 1, "blocks": "f" * 16,
     "session": "000000000000000b", "status": 200},
]  # fmt: skip


def written(tmp_path, rows, name="trace.jsonl"):
    path = tmp_path / name
    path.write_text(rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_mooncake_is_read_as_it_is(tmp_path):
    trace = read_trace(written(tmp_path, MOONCAKE))
    assert trace.name == "trace"
    assert trace.block_size == 512
    assert trace.arrival_s.tolist() == [0, 0.027, 1.5]
    assert trace.input_tokens.tolist() == [1100, 512, 2000]
    assert trace.output_tokens.tolist() == [5, 1, 9]  # an engine makes one token at least
    assert trace.blocks(2).tolist() == [0, 1, 2, 3]
    assert trace.session_ids.tolist() == [0, 1, 0]  # the third continues the first one's third block


def test_bailian_has_chats_and_its_blocks_get_their_place(tmp_path):
    trace = read_trace(written(tmp_path, BAILIAN))
    assert trace.block_size == 16
    assert trace.arrival_s.tolist() == [0, 0.75, 1.5]
    assert trace.session_ids.tolist() == [1, 2, 1]
    first, second, third = (trace.blocks(i).tolist() for i in range(3))
    assert third[:2] == first[:2]
    # The same content after another beginning is another block.
    assert len({*first, *second, *third}) == 3 + 2 + 2


def test_azure_has_lengths_alone_so_nothing_is_shared(tmp_path):
    trace = read_trace(written(tmp_path, AZURE, "azure.csv"))
    assert trace.name == "azure"
    assert trace.input_tokens.tolist() == [374, 396, 128]
    assert trace.arrival_s[1] == pytest.approx(4.314579)
    assert trace.arrival_s[2] > 175 * 86400
    assert trace.session_ids is None
    assert len(np.unique(trace.block_ids)) == len(trace.block_ids) == 2 + 3 + 1
    assert trace.ideal_hit_share == 0


def test_a_record_log_is_put_in_order_of_arrival(tmp_path):
    trace = read_trace(written(tmp_path, RECORDS, "record.log"))
    assert trace.block_size == 16
    assert trace.arrival_s.tolist() == [0, 1.5]
    assert trace.input_tokens.tolist() == [16, 40]
    assert trace.blocks(1).tolist() == [255, 255]
    assert trace.blocks(0).tolist() == [2**64 - 1]
    assert trace.session_ids.tolist() == [11, 10]


def test_a_record_log_goes_on_after_a_restart_and_another_salt_shares_nothing(tmp_path):
    again = read_trace(written(tmp_path, [*RECORDS, HEAD, RECORDS[1]]))
    assert len(np.unique(again.block_ids)) == 2
    salted = read_trace(written(tmp_path, [*RECORDS, {**HEAD, "salt_id": "b2"}, RECORDS[1]]))
    assert len(np.unique(salted.block_ids)) == 3


def test_what_was_not_served_is_skipped(tmp_path):
    problems = []
    rows = [*RECORDS, {**RECORDS[1], "status": 503}]
    trace = read_trace(written(tmp_path, rows), on_problem=problems.append)
    assert (len(trace), trace.skipped) == (2, 1)
    assert problems[0].endswith(
        "line 4: the request ended with status 503, so that no worker served it in full"
    )


def test_the_slice_in_the_repository_is_the_published_trace():
    trace = read_trace(SLICE, spread=False)
    assert len(trace) == 200
    assert np.unique(trace.block_offsets[1:] - trace.block_offsets[:-1]).min() >= 1
    assert (np.diff(trace.block_offsets) == -(-trace.input_tokens.astype(int) // 512)).all()


def test_a_coarse_clocks_ticks_are_spread_and_the_seed_decides_how():
    # Ten requests at 0 s, eleven at 3 s, ...: taken as they are, each tick would be a burst.
    raw = read_trace(SLICE, spread=False)
    assert tick_of(raw.arrival_s) == 3
    spread = read_trace(SLICE, seed=1)
    assert len(np.unique(spread.arrival_s)) == 200
    assert (np.diff(spread.arrival_s) >= 0).all()
    assert abs(spread.span_s - raw.span_s) < 6
    assert np.array_equal(spread.arrival_s, read_trace(SLICE, seed=1).arrival_s)
    assert not np.array_equal(spread.arrival_s, read_trace(SLICE, seed=2).arrival_s)


def test_a_fine_clock_is_left_alone():
    assert tick_of(np.array([0, 0.027, 1.5])) == 0
    assert tick_of(np.array([0.0, 0.0])) == 0
    assert tick_of(np.array([])) == 0


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_files_are_unpacked_whatever_their_name(tmp_path, ending, frames):
    pack = gzip.compress if ending == "gz" else pytest.importorskip("zstandard").compress
    plain = SLICE.read_bytes()
    third = len(plain) // frames + 1
    packed = b"".join(pack(plain[i : i + third]) for i in range(0, len(plain), third))
    for name in (f"t.jsonl.{ending}", "renamed.txt"):
        (tmp_path / name).write_bytes(packed)
        trace = read_trace(tmp_path / name, spread=False)
        assert np.array_equal(trace.block_ids, read_trace(SLICE, spread=False).block_ids)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_file_that_was_cut_short_is_one_sentence(tmp_path, ending):
    pack = gzip.compress if ending == "gz" else pytest.importorskip("zstandard").compress
    # zstd gives nothing before the end of a block of 128 kB, so there must be many, and no two alike.
    dice = np.random.default_rng(1)
    rows = ({**MOONCAKE[0], "hash_ids": dice.integers(0, 1 << 60, 3).tolist()} for _ in range(6000))
    plain = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = tmp_path / f"t.{ending}"
    packed = pack(plain)
    path.write_bytes(packed[: len(packed) * 3 // 4])
    problems = []
    trace = read_trace(path, on_problem=problems.append)
    assert 0 < len(trace) < 6000
    assert problems[-1].startswith(f"{path} is truncated: its compressed data end in the middle, after line ")
    with pytest.raises(TraceError, match="is truncated"):
        read_trace(path, strict=True)


def test_a_plain_file_that_was_cut_short_is_one_sentence(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(SLICE.read_bytes()[:-20])
    problems = []
    assert len(read_trace(path, on_problem=problems.append)) == 199
    assert len(problems) == 1
    assert f"{path}, line 200: the file is truncated: its last line is not complete" in problems[0]


def test_without_zstandard_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.zst").write_bytes(b"\x28\xb5\x2f\xfd....")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match=re.escape("pip install 'vllm-router[replay]'")):
        read_trace(tmp_path / "t.zst")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"input_length": -5}, "input_length is -5; it must be from 1 to 134217728"),
        ({"output_length": -1}, "output_length is -1; it must be from 0 to 134217728"),
        ({"input_length": 0}, "input_length is 0; it must be from 1 to 134217728"),
        ({"input_length": 1e300}, "input_length is 1000000"),
        ({"input_length": 1.5}, "input_length is 1.5; it must be a whole number"),
        ({"input_length": "7"}, "input_length is '7'; it must be a whole number"),
        ({"timestamp": -1}, "timestamp is -1; it must be 0 or more"),
        ({"timestamp": True}, "timestamp is True; it must be a number"),
        ({"timestamp": 10**400}, "it must be 0 or more"),
        ({"hash_ids": [1, -2]}, "hash_ids must be a list of whole numbers, 0 or more"),
        ({"hash_ids": [2**64]}, "hash_ids must be a list of whole numbers, 0 or more"),
        ({"hash_ids": "x"}, "hash_ids must be a list of whole numbers, 0 or more"),
        ({"hash_ids": [1, 2, 3, 4]}, "it has 4 blocks for 1100 tokens; 3 blocks of 512 hold them"),
    ],
)
def test_a_line_that_does_not_fit_is_skipped_with_its_number_or_fatal(tmp_path, row, sentence):
    rows = [MOONCAKE[0], {**MOONCAKE[0], **row}, MOONCAKE[2]]
    path = written(tmp_path, rows)
    problems = []
    assert len(read_trace(path, on_problem=problems.append)) == 2
    assert problems[0].startswith(f"{path}, line 2: ")
    assert sentence in problems[0]
    with pytest.raises(TraceError) as error:
        read_trace(path, strict=True)
    assert str(error.value) == problems[0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[]", "it is not a JSON object"),
        ("nonsense", "it is not JSON"),
        ('{"timestamp": 5, "hash_ids": []}', "input_length is missing"),
        ("\udcff", "it is not UTF-8 text"),
        ("[" * 100_000, "it is n"),
    ],
)
def test_a_line_that_is_no_record_is_skipped(tmp_path, line, sentence):
    path = tmp_path / "t.jsonl"
    path.write_text(f"{json.dumps(MOONCAKE[0])}\n{line}\n", errors="surrogateescape")
    problems = []
    assert len(read_trace(path, on_problem=problems.append)) == 1
    assert sentence in problems[0]


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("", {}, "PATH has no requests; a replay needs at least one"),
        ("\n\n", {}, "PATH has no requests; a replay needs at least one"),
        ('{"timestamp": 1, "hash_ids": []}\n', {}, "PATH has no requests: all 1 lines were skipped"),
        ("hello\n", {}, "PATH has a first line of unknown format; name the format with --format"),
        ("[" * 100_000, {}, "PATH has a first line of unknown format"),
        ("x", {"format": "csv"}, "format is 'csv'; it must be one of mooncake, bailian, azure, record"),
        ("x", {"limit": 0}, "limit is 0; at least 1 request is needed"),
        (AZURE, {"format": "mooncake"}, "PATH has no requests: all 4 lines were skipped"),
        ("a\rb", {"format": "azure"}, "PATH, line 1: it is not CSV"),
        ("a,b\n", {"format": "azure"}, "names no column ContextTokens and no column GeneratedTokens"),
        ('{"vllm_router_record_log": 9}\n', {}, "PATH: the record log has version 9; this vllm-router reads"),
        (
            json.dumps({**HEAD, "block_size": 0}),
            {},
            "PATH: the record log's head says block_size 0; it must be",
        ),
        (json.dumps({**HEAD, "salt_id": None}), {}, "PATH: the record log's head has no salt_id"),
        (
            json.dumps(HEAD) + "\n" + json.dumps({**HEAD, "block_size": 32}),
            {},
            "PATH, line 2: the record log changes its block_size from 16 to 32; split the file there",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path, content, options, sentence):
    path = written(tmp_path, content)
    with pytest.raises(TraceError) as error:
        read_trace(path, **options)
    assert sentence.replace("PATH", str(path)) in str(error.value)
    assert "\n" not in str(error.value)


def test_times_that_go_back_are_one_sentence_or_sorted(tmp_path):
    path = written(tmp_path, [MOONCAKE[2], MOONCAKE[0]])
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value) == (
        f"{path}, line 2: the time goes back from 1.5 s to 0 s; sort the file, or use --sort"
    )
    assert read_trace(path, sort=True).input_tokens.tolist() == [1100, 2000]


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path):
    with pytest.raises(TraceError, match=re.escape(f"{tmp_path / 'no'} does not exist; check the path")):
        read_trace(tmp_path / "no")
    with pytest.raises(TraceError, match="is a directory"):
        read_trace(tmp_path)
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8bnonsense that is no gzip")
    with pytest.raises(TraceError, match="is damaged after line 0"):
        read_trace(tmp_path / "bad.gz")


def test_a_limit_reads_no_further(tmp_path):
    path = written(tmp_path, [*MOONCAKE, "nonsense"])
    assert len(read_trace(path, limit=2, strict=True)) == 2


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps(MOONCAKE[0]), "mooncake"),
        (json.dumps(BAILIAN[0]), "bailian"),
        (AZURE.splitlines()[0], "azure"),
        (json.dumps(HEAD), "record"),
        ("[]", None),
        ("{}", None),
    ],
)
def test_the_first_line_tells_the_format(text, name):
    assert recognise(text) == name
    assert name is None or name in FORMATS


@given(
    st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([json.dumps(r).encode() for r in MOONCAKE])))
)
def test_hostile_bytes_give_a_trace_or_one_sentence(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("hostile") / "t"
    path.write_bytes(b"\n".join(lines))
    for format_name in (None, *FORMATS):
        with contextlib.suppress(TraceError):
            trace = read_trace(path, format=format_name, sort=True)
            assert len(trace) >= 1
            assert (np.diff(trace.arrival_s) >= 0).all()


def test_the_page_of_the_record_log_shows_a_file_that_is_read(tmp_path):
    page = (Path(__file__).parents[4] / "docs" / "reference" / "record_log.md").read_text()
    shown = re.search(r"```json\n(.*?)```", page, re.DOTALL).group(1)
    trace = read_trace(written(tmp_path, shown), strict=True)
    assert len(trace) == shown.count("arrival_s")
    assert trace.ideal_hit_share > 0
    module = importlib.import_module("vllm_router.replay.readers")
    assert f'"vllm_router_record_log": {module.RECORD_LOG_VERSION}' in shown
