"""cpp/index/prefix_tree.h; histories against the slow twin are in tests/property."""

import pytest

from vllm_router import RouterError
from vllm_router import _core_testing as testing


def look(tree, text):
    matches = testing.PrefixMatches()
    tree.match(text, matches)
    return matches


def test_starts_are_halved_so_that_old_ones_fade():
    tree = testing.StringTree()
    w = tree.add_worker()
    tree.insert(b"once", w, is_start=True)
    for number in range(1022):
        tree.insert(b"often%d" % number, w, is_start=True)
    assert look(tree, b"once").starts_at(4) == 1
    assert look(tree, b"often").starts_at(5) == 1022
    tree.insert(b"often", w, is_start=True)
    assert look(tree, b"often").starts == 512
    assert look(tree, b"often").starts_at(5) == 511
    assert look(tree, b"once").starts_at(4) == 0


def test_a_long_text_is_added_in_pieces_and_found_whole():
    tree = testing.StringTree()
    w = tree.add_worker()
    text = bytes(range(256)) * 4096  # 1 MiB
    tree.insert(text, w)
    assert look(tree, text).entries() == [(w, len(text))]
    assert look(tree, text[:-1] + b"!").best == len(text) - 1
    assert look(tree, text).ends() == [len(text)]
    assert tree.stats()["nodes"] == 32
    assert tree.stats()["size"] == tree.size(w) == len(text)


def test_a_text_larger_than_the_limit_is_not_added_and_nothing_is_lost():
    tree = testing.StringTree(max_size=8)
    w = tree.add_worker()
    tree.insert(b"12345678", w)
    tree.insert(b"123456789", w)
    assert look(tree, b"123456789").entries() == [(w, 8)]
    assert look(tree, b"123456789").ends() == [8]


def test_a_hundred_thousand_children_of_one_node():
    tree = testing.TokenTree(page_size=2)
    w = tree.add_worker()
    tree.insert([1, 1], w)
    for child in range(100_000):
        tree.insert([1, 1, child, 0], w)
    assert tree.stats()["nodes"] == 100_001
    for child in (0, 1, 50_000, 99_999):
        assert look(tree, [1, 1, child, 0]).best == 4
    assert look(tree, [1, 1, 100_000, 0]).best == 2


def test_a_limit_of_memory_is_kept_too():
    tree = testing.StringTree(max_memory=100_000)
    w = tree.add_worker()
    for number in range(5000):
        tree.insert(b"%d" % (number * 7919), w)
        assert tree.stats()["memory"] <= 101_000
    assert look(tree, b"%d" % (4999 * 7919)).best == len(b"%d" % (4999 * 7919))
    assert tree.stats()["evicted"] > 0


def test_a_removed_workers_nodes_are_reclaimed_by_later_inserts():
    tree = testing.StringTree()
    gone, stays = tree.add_worker(), tree.add_worker()
    for number in range(1000):
        tree.insert(b"%d" % number, gone)
    tree.remove_worker(gone)
    assert tree.stats()["removing"] == 1
    assert tree.size(gone) == 0
    for number in range(1000):
        tree.insert(b"x%d" % number, stays)
    assert tree.stats()["removing"] == 0
    assert tree.stats()["size"] == tree.size(stays)
    assert tree.sizes([stays, gone, stays]) == [tree.size(stays), 0, tree.size(stays)]


def test_ends_of_one_node_are_the_last_ones():
    tree = testing.TokenTree(page_size=4)
    w = tree.add_worker()
    for number in range(100):
        tree.insert([1, 2, 3, 4, number], w)
    assert look(tree, [1, 2, 3, 4, 99]).ends() == [5]
    assert look(tree, [1, 2, 3, 4, 37]).ends() == [5]
    assert look(tree, [1, 2, 3, 4, 36]).ends() == []


def test_workers_are_limited_and_say_so():
    tree = testing.StringTree()
    for _ in range(4096):
        tree.add_worker()
    with pytest.raises(RouterError, match="4096 workers"):
        tree.add_worker()


def test_every_prefix_of_a_text_may_be_a_request_of_its_own():
    # a -- a -- a -- ...   a node per request, each the end of one
    tree = testing.StringTree(max_size=500)
    one, other = tree.add_worker(), tree.add_worker()
    for length in range(1, 501):
        tree.insert(b"a" * length, one)
    tree.insert(b"a" * 250, other)
    assert tree.stats()["nodes"] == 500
    matches = look(tree, b"a" * 600)
    assert matches.entries() == [(one, 500), (other, 250)]
    assert matches.ends() == list(range(1, 501))
    tree.insert(b"b" * 400, other)  # first all that `one` used longer ago, then the end of what is left
    assert look(tree, b"a" * 600).entries() == [(other, 100)]
