"""StringTree and TokenTree as Python sees them; what is matched and given up is proved in tests/property."""

import threading

import numpy as np
import pytest

from tests.rows import for_each_row
from vllm_router import PrefixMatch, RouterError, StringTree, TokenTree, WorkerNotFoundError

W1, W2 = "http://w1:8000", "http://w2:8000"


def test_a_text_is_found_again_with_all_who_saw_it():
    tree = StringTree()
    tree.insert("You are kind. Hello", W1)
    tree.insert("You are kind. Bye", W2)
    tree.insert("You are kind. Bye", W1)
    assert tree.match("You are kind. Bye!") == PrefixMatch((W1, W2), 17, 18, {W1: 17, W2: 17})
    assert tree.match("You are kind. Hell") == ((W1,), 18, 18, {W1: 18, W2: 14})
    assert tree.match("He") == PrefixMatch(workers=(), matched=0, total=2, depths={})


def test_a_match_does_not_end_within_a_character():
    tree = StringTree()
    tree.insert("né", W1)
    assert tree.match("nè").matched == 1
    assert tree.match("né").matched == 3
    assert tree.match("né".encode()).matched == 3
    assert tree.match("né".encode()[:2] + b"?").matched in (1, 2)


@pytest.mark.parametrize("text", ["", "a", "🙂", "\0", "x" * (1 << 20)])
def test_texts_of_any_length(text):
    tree = StringTree()
    tree.insert(text, W1)
    assert tree.match(text).matched == len(text.encode())
    assert tree.size(W1) == tree.size() == len(text.encode())


@pytest.mark.parametrize("prompt", [list(range(40)), tuple(range(40)), np.arange(40, dtype=np.uint32)])
def test_tokens_count_in_whole_pages(prompt):
    tree = TokenTree(page_size=16)
    tree.insert(prompt, W1)
    assert tree.match(prompt) == ((W1,), 32, 40, {W1: 32})
    assert tree.size(W1) == 4 * 32
    assert tree.page_size == 16


def test_batches_say_what_single_calls_say():
    texts = ["aab", "aac", "", "é"]
    tree, ids = StringTree(), TokenTree(page_size=1)
    tree.insert_batch(texts, [W1, W2, W1, W2])
    for batch in (
        tree.match_batch(["aacx", "aa", "z"]),
        tree.match_batch(b"aacxaaz", np.array([0, 4, 6, 7])),
    ):
        assert [part.dtype for part in batch] == [np.int32, np.int64, np.int64]
        assert [part.tolist() for part in batch] == [[1, 0, -1], [3, 2, 0], [4, 2, 1]]
    ids.insert_batch(np.array([1, 2, 3, 1, 9], np.uint32), W1, np.array([0, 3, 5]))
    for batch in (
        ids.match_batch([[1, 2], [1, 9, 9]]),
        ids.match_batch(np.array([1, 2, 1, 9, 9], np.uint32), np.array([0, 2, 5])),
    ):
        assert [part.tolist() for part in batch] == [[0, 0], [2, 2], [2, 3]]
    assert tree.workers == [W1, W2]


def test_the_limit_is_kept_at_every_insert_in_the_order_asked_for():
    for eviction, left in {
        "lru": ["b", "c"],
        "fifo": ["b", "c"],
        "mru": ["a", "c"],
        "filo": ["a", "c"],
    }.items():
        tree = StringTree(max_tree_size=8, eviction=eviction)
        for letter in "abc":
            tree.insert(4 * letter, W1)
            assert tree.size() <= 8
        assert [letter for letter in "abc" if tree.match(4 * letter).matched] == left
        assert (tree.eviction, tree.max_tree_size) == (eviction, 8)
    tree = StringTree(max_tree_size=8, eviction="lfu")
    tree.insert_batch(["aaaa", "aaaa", "bbbb", "cccc"], W1)
    assert [bool(tree.match(4 * letter).matched) for letter in "abc"] == [True, False, True]
    tree = StringTree(max_tree_size=8, eviction="priority")
    tree.insert("aaaa", W1, priority=1)
    tree.insert("bbbb", W1)
    tree.insert("cccc", W1, priority=2**60)
    assert [bool(tree.match(4 * letter).matched) for letter in "abc"] == [True, False, True]


def test_workers_give_up_and_leave():
    tree = StringTree()
    tree.insert("shared and more", W1)
    tree.insert("shared", W2)
    assert tree.evict_worker(W1, 6) == 9
    assert tree.match("shared and more").depths == {W1: 6, W2: 6}
    tree.remove_worker(W1)
    assert tree.match("shared and more").depths == {W2: 6}
    assert tree.workers == [None, W2]
    while tree.trim():
        pass
    assert tree.stats()["removing_workers"] == 0
    for call in (tree.size, tree.evict_worker, tree.remove_worker):
        with pytest.raises(WorkerNotFoundError, match="is not known here"):
            call(W1)


def test_trim_makes_room_before_it_is_needed():
    tree = StringTree()
    tree.insert_batch([f"{number:08}" for number in range(1000)], W1)
    calls = 0
    while tree.trim(pairs=100, max_size=100):
        calls += 1
    assert calls > 5
    assert tree.size() <= 100
    assert tree.match("00000999").matched == 8


@for_each_row(
    ("error", "match", "call"),
    [
        (ValueError, "eviction is 'rlu'; it must be one of 'lru'", lambda: StringTree(eviction="rlu")),
        (ValueError, "max_tree_size is 0", lambda: StringTree(max_tree_size=0)),
        (TypeError, "max_tree_size is of type float", lambda: StringTree(max_tree_size=1.5)),
        (ValueError, "page_size is 65537", lambda: TokenTree(65537)),
        (TypeError, "For token ids there is TokenTree", lambda: StringTree().insert([1], W1)),
        (TypeError, "For texts there is StringTree", lambda: TokenTree().insert("a", W1)),
        (TypeError, "worker is of type int", lambda: StringTree().insert("a", 1)),
        (TypeError, r"pass \[prefix\]", lambda: StringTree().match_batch("a")),
        (ValueError, "has only 1 bytes", lambda: StringTree().match_batch(b"a", np.array([0, 2]))),
        (
            ValueError,
            "workers has 1 names and there are 2",
            lambda: StringTree().insert_batch(["", ""], [W1]),
        ),
        (ValueError, "token id is an integer", lambda: TokenTree().insert([-1], W1)),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(error, match, call):
    with pytest.raises(error, match=match):
        call()


def test_too_many_workers_are_refused():
    tree = StringTree()
    for number in range(4096):
        tree.add_worker(f"w{number}")
    with pytest.raises(RouterError, match="4096 workers"):
        tree.insert("a", "one more")


def test_threads_may_use_it_at_once():
    tree, ended = StringTree(max_tree_size=20_000), []

    def work(worker):
        for number in range(300):
            text = f"shared {number % 50} {worker} " * 20
            tree.insert(text, worker)
            tree.match(text)
            if number % 100 == 99:
                tree.remove_worker(worker)
                tree.add_worker(worker)
        ended.append(worker)

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ended) == 4
    assert tree.size() <= 20_000


def test_it_says_what_it_is():
    assert repr(StringTree(max_tree_size=10)) == "<StringTree max_tree_size=10 eviction='lru'>"
    assert repr(TokenTree(8, max_tree_size=10)) == "<TokenTree page_size=8 max_tree_size=10 eviction='lru'>"
