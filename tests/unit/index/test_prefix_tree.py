"""cpp/index/prefix_tree.h; histories against the slow twin are in tests/property."""

import pytest

from vllm_router import RouterError
from vllm_router import _core_testing as testing


def look(tree, text):
    matches = testing.PrefixMatches()
    tree.match(text, matches)
    return matches


def test_one_walk_answers_for_every_worker():
    # root -- "You are " -+- "kind. Hello"   w1
    #                     +- "a judge."      w2
    tree = testing.StringTree()
    w1, w2, w3 = (tree.add_worker() for _ in range(3))
    tree.insert(b"You are kind. Hello", w1)
    tree.insert(b"You are a judge.", w2)
    matches = look(tree, b"You are kind.")
    assert (matches.best, matches.total) == (13, 13)
    assert matches.entries() == [(w1, 13), (w2, 8)]
    assert matches.matched(w3) == 0


def test_tokens_count_in_whole_pages():
    tree = testing.TokenTree(page_size=4)
    w = tree.add_worker()
    tree.insert(list(range(10)), w)
    assert look(tree, list(range(10))).entries() == [(w, 8)]
    assert look(tree, [*range(7), 99]).entries() == [(w, 4)]
    assert look(tree, [0, 1, 2]).entries() == []


def test_a_match_tells_where_earlier_requests_ended():
    tree = testing.StringTree()
    w = tree.add_worker()
    tree.insert(b"ab", w)
    tree.insert(b"abcd", w)
    assert look(tree, b"abcx").ends() == [2]
    assert look(tree, b"abcde").ends() == [2, 4]


def test_an_end_within_a_page_counts_if_the_rest_of_the_page_is_the_same():
    tree = testing.TokenTree(page_size=4)
    w = tree.add_worker()
    tree.insert([1, 2, 3, 4, 5, 6], w)
    assert look(tree, [1, 2, 3, 4, 5, 6, 7]).ends() == [6]
    assert look(tree, [1, 2, 3, 4, 5, 7, 7]).ends() == []


def test_starts_are_counted_on_their_path():
    tree = testing.StringTree()
    w = tree.add_worker()
    for text in (b"system one", b"system two", b"other"):
        tree.insert(text, w, is_start=True)
    matches = look(tree, b"system three")
    assert matches.starts == 3
    assert matches.starts_at(7) == 2


def test_the_size_stays_within_its_limit():
    tree = testing.StringTree(max_size=8)
    w = tree.add_worker()
    tree.insert(b"aaaa", w)
    tree.insert(b"bbbb", w)
    tree.insert(b"cccc", w)
    assert tree.stats()["size"] == 8
    assert look(tree, b"aaaa").entries() == []
    assert look(tree, b"bbbb").entries() == [(w, 4)]


def test_a_removed_worker_is_matched_no_more():
    tree = testing.StringTree()
    w = tree.add_worker()
    tree.insert(b"abc", w)
    tree.remove_worker(w)
    assert look(tree, b"abc").entries() == []


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


def test_a_worker_removed_and_added_again_begins_with_nothing():
    tree = testing.StringTree()
    gone = tree.add_worker()
    tree.insert(b"abc", gone)
    walked = look(tree, b"abcd")
    tree.remove_worker(gone)
    tree.insert(b"abcd", gone, walked=walked)  # as if it had been removed while the request was decided
    assert look(tree, b"abcd").entries() == []
    again = tree.add_worker()
    assert look(tree, b"abcd").entries() == []
    tree.insert(b"abcd", again, walked=walked)
    assert look(tree, b"abcd").entries() == [(again, 4)]
    tree.insert(b"x", 5000)
    assert tree.size(5000) == 0
