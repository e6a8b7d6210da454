"""Router.save_index() and load_index(): what a policy has learned, over a restart."""

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.block_cache_tracker import BlockCacheTracker as SlowTracker
from vllm_router import (
    BlockCacheTracker,
    IndexFileError,
    Router,
    StringTree,
    UnusedOptionWarning,
    hash_blocks,
)

URLS = ["http://a:8000", "http://b:8000@0", "http://b:8000@1"]
POLICIES = ["auto", "vllm_cache_aware"]


def prompts(seed: int, count: int) -> list[list[int]]:
    """Token ids that share prefixes, some of them one block and others many."""
    draw = random.Random(seed)
    stems = [[draw.randrange(9) for _ in range(16 * draw.randrange(1, 6))] for _ in range(4)]
    return [draw.choice(stems) + [draw.randrange(9) for _ in range(draw.randrange(80))] for _ in range(count)]


def routed(router: Router, sent: list[list[int]], among: list[str] | None = None) -> None:
    for prompt in sent:
        router.select(token_ids=prompt, among=among).finish()


def held(router: Router, prompt: list[int]) -> dict[str, int | None]:
    return {worker.url: worker.matched for worker in router.explain(token_ids=prompt).workers}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("options", [{}, {"max_blocks_per_worker": 30}, {"block_size": "auto"}])
def test_a_router_that_loads_the_index_knows_what_the_first_one_knew(policy, options, tmp_path: Path) -> None:
    if policy == "vllm_cache_aware" and "block_size" in options:
        options = {"block_size": 4}
    first = Router(policy, URLS, seed=1, **options)
    sent = prompts(1, 60)
    routed(first, sent)
    first.save_index(tmp_path / "index")

    second = Router(policy, reversed(URLS), seed=1, **options)  # the order of the fleet does not matter
    assert sorted(second.load_index(tmp_path / "index")) == sorted(URLS)
    assert any(any(held(first, prompt).values()) for prompt in sent)
    for prompt in sent:
        assert held(second, prompt) == held(first, prompt)
    stats = second.stats()["block_index"]
    assert stats["workers"] == first.stats()["block_index"]["workers"]
    assert stats["recorded_requests"] == 0


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), capacity=st.integers(1, 60), more=st.integers(0, 20))
def test_blocks_go_in_the_order_in_which_they_would_have_gone(tmp_path_factory, seed, capacity, more) -> None:
    """The slow tracker has no files: it goes on where the first router was."""
    path = tmp_path_factory.mktemp("index") / "file"
    slow = SlowTracker(capacity)
    first, second = (Router("auto", URLS[:1], max_blocks_per_worker=capacity) for _ in range(2))
    for number, prompt in enumerate(prompts(seed, 20 + more)):
        if number == 20:
            first.save_index(path)
            second.load_index(path)
        (first if number < 20 else second).select(token_ids=prompt).finish()
        slow.record(URLS[0], hash_blocks(prompt).tolist())
    if more == 0:
        first.save_index(path)
        second.load_index(path)
    for prompt in prompts(seed, 20 + more):
        assert held(second, prompt)[URLS[0]] == slow.match(hash_blocks(prompt).tolist()).get(URLS[0], 0)


def test_workers_are_known_by_url_and_others_are_left_out(tmp_path: Path) -> None:
    first = Router("auto", URLS)
    first.remove_worker("http://b:8000@0")  # leaves a place without a name
    first.add_worker("http://c:8000")
    common = list(range(160))
    for url in first.worker_urls:
        routed(first, [common], among=[url])
    first.save_index(tmp_path / "index")
    second = Router("auto", ["http://c:8000", "http://new:8000", "http://a:8000"])
    assert sorted(second.load_index(tmp_path / "index")) == ["http://a:8000", "http://c:8000"]
    assert held(second, common) == {"http://c:8000": 10, "http://new:8000": 0, "http://a:8000": 10}
    assert second.select(token_ids=common).worker_url != "http://new:8000"


def test_what_was_learned_before_stays(tmp_path: Path) -> None:
    first, second = Router("auto", URLS[:1]), Router("auto", URLS[:1])
    routed(first, [list(range(160))])
    first.save_index(tmp_path / "index")
    routed(second, [list(range(500, 660))])
    second.load_index(tmp_path / "index")
    second.load_index(tmp_path / "index")  # once more changes nothing
    assert held(second, list(range(160))) == held(second, list(range(500, 660))) == {URLS[0]: 10}
    assert second.stats()["block_index"]["worker_blocks"] == 20


def test_the_file_is_that_of_a_tracker(tmp_path: Path) -> None:
    router = Router("auto", URLS)
    routed(router, prompts(3, 30))
    router.save_index(tmp_path / "index")
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o600
    tracker = BlockCacheTracker.load(tmp_path / "index")
    assert sorted(tracker.workers) == sorted(URLS)
    for prompt in prompts(3, 30):
        known = {url: blocks for url, blocks in held(router, prompt).items() if blocks}
        assert known == tracker.match(prompt)
    tracker.remove_worker(URLS[0])
    tracker.save(tmp_path / "index")
    assert sorted(Router("auto", URLS).load_index(tmp_path / "index")) == sorted(URLS[1:])


def test_what_cannot_be_loaded_changes_nothing(tmp_path: Path) -> None:
    router = Router("auto", URLS)
    routed(router, [list(range(160))])
    before = router.stats()["block_index"]["worker_blocks"]
    router.save_index(tmp_path / "good")
    (tmp_path / "cut").write_bytes((tmp_path / "good").read_bytes()[:-9])
    StringTree().save(tmp_path / "tree")
    Router("auto", URLS, block_size=32).save_index(tmp_path / "blocks")
    for name, says in (
        ("cut", "is not usable"),
        ("tree", "StringTree"),
        ("blocks", "its blocks have 32 tokens .* those of this router have 16"),
    ):
        with pytest.raises(IndexFileError, match=says):
            router.load_index(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        router.load_index(tmp_path / "none")
    assert router.stats()["block_index"]["worker_blocks"] == before
    for call in (Router("random", URLS).save_index, Router("cache_aware", URLS).load_index):
        with pytest.raises(ValueError, match="no block index to save or load; auto and vllm_cache_aware"):
            call(tmp_path / "good")


def test_an_index_is_saved_while_requests_come_and_workers_change(tmp_path: Path) -> None:
    router = Router("auto", URLS)
    done = threading.Event()

    def select() -> None:
        draw = random.Random(1)
        while not done.is_set():
            router.select(token_ids=[draw.randrange(4) for _ in range(64)]).finish()

    def change() -> None:
        while not done.is_set():
            router.add_worker("http://z:8000")
            router.remove_worker("http://z:8000")

    threads = [threading.Thread(target=work) for work in (select, change)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            router.save_index(tmp_path / "index")
            assert set(BlockCacheTracker.load(tmp_path / "index").workers) - {None} >= set(URLS)
            router.load_index(tmp_path / "index")
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_router_whose_blocks_strides_bound_loads_no_file(tmp_path: Path) -> None:
    first = Router("auto", URLS, seed=1)
    sent = prompts(1, 20)
    routed(first, sent)
    first.save_index(tmp_path / "index")
    second = Router("auto", URLS, seed=1, peer_sync_stride_tokens=256)
    sentence = "^peer_sync_stride_tokens is 256, and a file has no strides.*at 0 to load an index$"
    with pytest.raises(ValueError, match=sentence):
        second.load_index(tmp_path / "index")
    assert not any(any(held(second, prompt).values()) for prompt in sent)
    assert sorted(Router("auto", URLS, seed=1).load_index(tmp_path / "index")) == sorted(URLS)
    # A policy without blocks has no strides: the option is not what is wrong there.
    with pytest.warns(UnusedOptionWarning):
        other = Router("round_robin", URLS, peer_sync_stride_tokens=256)
    with pytest.raises(ValueError, match="round_robin"):
        other.load_index(tmp_path / "index")
