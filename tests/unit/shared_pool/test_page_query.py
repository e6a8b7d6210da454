"""cpp/shared_pool/page_query.h; tests/property/test_page_query.py compares it with its slow twin."""

import pytest

from vllm_router import _core_testing as testing

State = testing.PageState
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


def test_an_edge_without_an_object_ends_a_page_earlier():
    query = testing.PageQuery(3, MHA)
    run(query, lambda page, suffix: page < 2 and (page, suffix) != (1, "_0_v"))
    assert query.ranges == [(0, 1)]


def test_all_queries_every_object():
    query = testing.PageQuery(2, MHA, all=True)
    assert run(query, lambda page, suffix: (page, suffix) != (0, "_0_v")) == [
        [(0, "_0_k"), (0, "_0_v"), (1, "_0_k"), (1, "_0_v")]
    ]
    assert query.ranges == [(1, 2)]


def test_objects_of_the_last_pages_alone():
    query = testing.PageQuery(4, ["_k"], ["_s"], 2)
    assert run(query, lambda page, _: page < 3)[1:] == [[(1, "_s"), (2, "_s")]]
    assert query.ranges == [(0, 3)]


def test_holes_make_ranges():
    query = testing.PageQuery(6, ["_k"])
    run(query, lambda page, _: page not in (2, 3))
    assert query.ranges == [(0, 2), (4, 6)]


def test_at_most_four_requests_are_in_flight_and_a_group_without_a_hit_is_the_last():
    query = testing.PageQuery(64 * 6, ["_k"])
    numbers = [query.next()[0] for _ in range(4)]
    assert query.next() is None
    query.take(numbers[1], [False] * 64)
    assert query.next() is None
    for number in (numbers[0], numbers[2], numbers[3]):
        query.take(number, [True] * 64)
    assert query.next() is None
    assert query.done
    assert query.ranges == [(0, 64), (128, 256)]


def test_what_is_known_needs_no_query():
    query = testing.PageQuery(3, MHA)
    for page, state in enumerate([State.first, State.whole, State.absent]):
        query.know(page, state)
    assert query.next() is None
    assert query.done
    assert query.ranges == [(0, 2)]


def test_a_failure_keeps_what_is_known_so_far():
    query = testing.PageQuery(200, MHA)
    first, second, third = query.next(), query.next(), query.next()
    query.take(first[0], [True] * 64)
    query.fail(second[0])
    assert query.ranges == [(0, 64)]
    query.take(third[0], [True] * 64)
    assert query.next() is None
    assert query.done
    assert query.ranges == [(0, 64), (128, 192)]


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
