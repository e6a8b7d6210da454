"""cpp/http/head.h: what a head can hold at most."""

import pytest

from tests.fuzz.rows import request, response
from vllm_router import _core_testing as testing

LONGEST = 10**15 - 1


@pytest.mark.parametrize("length", [0, 1, 2**32, LONGEST])
def test_lengths_up_to_15_digits_are_read_exactly(length):
    field = b"Content-Length: %d" % length
    assert testing.RequestHeadParser().parse(request(field))["content_length"] == length
    assert testing.ResponseHeadParser().parse(response(field))["content_length"] == length
    assert (
        testing.RequestHeadParser().parse(request(b"Content-Length: %015d" % length))["content_length"]
        == length
    )


def test_a_longer_body_cannot_be_announced_by_head_or_chunk():
    field = b"Content-Length: %d" % (LONGEST + 1)
    assert testing.RequestHeadParser().parse(request(field))["status"] == 413
    assert testing.ResponseHeadParser().parse(response(field))["status"] == 502
    assert testing.scan_chunked(b"%x\r\n" % LONGEST)["event"] == "need_more"
    assert testing.scan_chunked(b"%x\r\n" % (LONGEST + 1))["event"] == "bad"
