"""cpp/http/chunked.h: the table's rows, and every corpus body split at every byte."""

import pytest

from tests.fuzz.rows import OK, ROWS
from tests.models import chunked
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

BODIES = [row for row in ROWS if row.kind == "body"]
WORKER_BODIES = [row for row in ROWS if row.kind == "worker_body"]
SMALL = [row for row in BODIES if len(row.data) < 300]


@for_each_row("row", BODIES + WORKER_BODIES, ids=str)
def test_each_row_of_the_table_gets_its_answer(row):
    scan = testing.scan_chunked(row.data, response=row.kind == "worker_body")
    decoded = chunked.decode(row.data, response=row.kind == "worker_body")
    if row.answer == OK:
        assert (scan["event"], scan["error"]) == ("end", "")
        assert (scan["body"], scan["used"]) == decoded
    else:
        assert scan["event"] == "bad"
        assert scan["error"].endswith(".")
        assert decoded is None


@pytest.mark.parametrize("row", WORKER_BODIES, ids=str)
def test_a_blank_behind_a_size_is_for_workers_only(row):
    """mending row 18: blanks behind a chunk size pass in a response and are refused in a request."""
    scan = testing.scan_chunked(row.data)
    assert scan["event"] == "bad"
    assert chunked.decode(row.data) is None


@for_each_row("row", SMALL, ids=str)
def test_the_result_does_not_depend_on_the_split(row):
    whole = testing.scan_chunked(row.data)
    outcome = {key: whole[key] for key in ("event", "body", "used", "error")}
    size = len(row.data)
    two = [[cut] for cut in range(size + 1)]
    three = [[a, b] for a in range(size + 1) for b in range(a, size + 1)] if size < 60 else []
    many = [list(range(step, size, step)) for step in range(1, 10)]
    for cuts in [*two, *three, *many]:
        scan = testing.scan_chunked(row.data, cuts)
        assert {key: scan[key] for key in outcome} == outcome, f"cut at {cuts}"


def test_a_beginning_of_a_good_body_needs_more():
    data = b"5;x=y\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n"
    for size in range(len(data)):
        assert testing.scan_chunked(data[:size])["event"] == "need_more"
    assert testing.scan_chunked(data)["body"] == b"hello0123456789abcdef"


def test_bytes_after_the_end_are_not_used():
    scan = testing.scan_chunked(b"1\r\na\r\n0\r\n\r\n1\r\nb\r\n")
    assert (scan["event"], scan["used"], scan["body"]) == ("end", 11, b"a")


def test_edges_are_where_nothing_of_a_chunk_is_half_sent():
    # Each chunk, "1 CR LF a CR LF", has six bytes; the end, "0 CR LF CR LF", has five.
    data = b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
    scan = testing.scan_chunked(data, list(range(1, len(data))))
    assert sorted(set(scan["edges"])) == [6, 12, 17]


@pytest.mark.parametrize(
    "name", ["Content-Length", "TRANSFER-ENCODING", "host", "Connection", "Trailer", "TE"]
)
def test_trailers_may_not_change_what_the_head_said(name):
    trailer = f"{name}: x\r\n".encode()
    assert testing.scan_chunked(b"0\r\n" + trailer + b"\r\n")["event"] == "bad"
    assert testing.scan_chunked(b"0\r\nA: b\r\nx" + trailer + b"\r\n")["event"] == "end"


@for_each_row(
    "extension",
    [
        b";",
        b";;",
        b";a=",
        b"; =a",
        b";a b",
        b";a ",
        b';a="b"c',
        b';a="b" ',
        b" ;a",
        b'="a"',
        b";a=b c",
        b";\xe9",
    ],
)
def test_extensions_that_break_their_grammar_are_refused(extension):
    data = b"1" + extension + b"\r\na\r\n0\r\n\r\n"
    assert testing.scan_chunked(data)["event"] == "bad"
    assert chunked.decode(data) is None


def test_a_chunk_of_many_pieces_is_passed_on_piece_by_piece():
    data = b"186a0\r\n" + bytes(100_000) + b"\r\n0\r\n\r\n"
    for step in (1000, 4096, 65536):
        assert testing.scan_chunked(data, list(range(step, len(data), step)))["body"] == bytes(100_000)
