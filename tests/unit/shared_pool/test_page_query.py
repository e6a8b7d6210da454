"""cpp/shared_pool/page_query.h; tests/property/test_page_query.py compares it with its slow twin."""

import pytest

from vllm_router import _core_testing as testing

MHA = ["_0_k", "_0_v"]


def run(query, is_there):
    """All requests, answered as they come; the keys that were sent."""
    sent = []
    while not query.done:
        flying = []
        while (request := query.next()) is not None:
            flying.append(request)
        for number, keys in flying:
            sent.append(keys)
            query.take(number, [is_there(*key) for key in keys])
    return sent


def test_one_key_of_each_page_then_the_others_of_the_edge():
    query = testing.PageQuery(3, MHA)
    assert run(query, lambda page, _: page < 2) == [
        [(0, "_0_k"), (1, "_0_k"), (2, "_0_k")],
        [(1, "_0_v")],
    ]
    assert query.ranges == [(0, 2)]


@pytest.mark.parametrize(
    ("page", "block", "blocks", "expected"),
    [
        (64, 16, 100, [(0, 8), (12, 16)]),
        (16, 16, 100, [(0, 2), (3, 4)]),
        (16, 32, 100, [(0, 1)]),  # the fourth page is half a block
        (64, 16, 14, [(0, 8), (12, 14)]),
    ],
)
def test_pages_become_blocks_of_the_router(page, block, blocks, expected):
    assert testing.blocks_of_pages([(0, 2), (3, 4)], page, block, blocks) == expected
