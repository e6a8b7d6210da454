"""Ours, the twins and every way to split agree on each file of the http room's corpus.

The rows of the table are among them. What a fuzzer finds and a fix follows up stays there, too, under a name
that says what it was.
"""

from itertools import pairwise

import pytest

from tests.fuzz.rows import CORPUS, LONGEST_IN_CORPUS, ROWS
from tests.models import chunked, http_head
from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def files(target):
    return [pytest.param(path, id=path.name) for path in sorted((CORPUS / target).iterdir())]


def some_cuts(data):
    """One byte at a time, and a few pairs of pieces."""
    yield list(range(1, len(data)))
    yield from ([len(data) * part // 7] for part in range(7))


def without_message(result):
    result.pop("message", None)
    return result


def test_every_row_of_the_table_is_in_the_corpus():
    stale = [
        row.path.name
        for row in ROWS
        if len(row.data) <= LONGEST_IN_CORPUS and row.path.read_bytes() != row.data
    ]
    assert stale == [], "write the corpus anew: python -m tests.fuzz.rows"
    numbered = set(CORPUS.glob("*/[0-9][0-9]_*"))
    assert numbered <= {row.path for row in ROWS}, "a row was renamed; remove its old file"


@for_each_row("path", files("request_head"))
def test_request_heads_replay(path):
    data = path.read_bytes()
    expected = http_head.parse_request(data)
    parser = testing.RequestHeadParser()
    for cuts in [[], *some_cuts(data)]:
        assert without_message(parser.parse(data, cuts=cuts, move=len(data) < 1000)) == expected


@for_each_row("path", files("response_head"))
def test_response_heads_replay(path):
    data = path.read_bytes()
    for to_head, to_upgrade in ((False, False), (True, False), (False, True)):
        expected = http_head.parse_response(data, to_head, to_upgrade)
        parser = testing.ResponseHeadParser()
        for cuts in [[], *some_cuts(data)]:
            result = parser.parse(data, to_head=to_head, to_upgrade=to_upgrade, cuts=cuts)
            assert without_message(result) == expected


@for_each_row("path", files("body"))
def test_chunked_bodies_replay(path):
    data = path.read_bytes()
    for response in (False, True):
        expected = chunked.decode(data, response)
        for cuts in [[], *some_cuts(data)]:
            scan = testing.scan_chunked(data, cuts, response=response)
            assert ((scan["body"], scan["used"]) if scan["event"] == "end" else None) == expected


@for_each_row("path", files("stream_tail"))
def test_stream_tails_replay(path):
    data = path.read_bytes()
    whole = testing.summarize_tail([data])
    for cuts in some_cuts(data):
        pieces = [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]
        assert testing.summarize_tail(pieces) == whole
