"""cpp/index/prefix_tree.h; histories against the slow twin are in tests/property."""

from vllm_router._core import testing


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
