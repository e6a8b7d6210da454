"""block_size="auto": what a ticket says of a worker is what its engine has in complete blocks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import Router

SIZES = st.one_of(st.sampled_from([1, 8, 16, 24, 32, 64, 128, 528]), st.integers(1, 2000))


class Engine:
    """A prefix cache without a limit: the prefixes of complete blocks, by their ids."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.blocks: set[tuple[int, ...]] = set()

    def cached(self, ids: list[int]) -> int:
        """Tokens; the last one is always computed."""
        size = self.block_tokens
        held = 0
        while held + size <= len(ids) - 1 and tuple(ids[: held + size]) in self.blocks:
            held += size
        return held

    def compute(self, ids: list[int]) -> None:
        for end in range(self.block_tokens, len(ids) + 1, self.block_tokens):
            self.blocks.add(tuple(ids[:end]))


PARTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 80)), min_size=1, max_size=4)


@given(
    sizes=st.lists(SIZES, min_size=1, max_size=3),
    prompts=st.lists(st.tuples(PARTS, st.integers(0, 2)), min_size=1, max_size=12),
    policy=st.sampled_from(["auto", "vllm_cache_aware"]),
)
def test_no_token_is_promised_that_the_engine_does_not_hold(sizes, prompts, policy):
    urls = [f"http://w{i}:8000" for i in range(len(sizes))]
    router = Router(policy=policy, worker_urls=urls, block_size="auto", seed=1)
    engines = {url: Engine(size) for url, size in zip(urls, sizes, strict=True)}
    for url, size in zip(urls, sizes, strict=True):
        router.set_cache(url, block_size=size)
    assert router.stats()["block_index"]["block_sizes"] == dict(zip(urls, sizes, strict=True))
    for parts, which in prompts:
        ids = [token for token, count in parts for _ in range(count)]
        url = urls[which % len(urls)]
        others = [other for other in urls if other != url]
        with router.select(token_ids=np.array(ids, dtype=np.uint32), exclude=others) as ticket:
            promised = 16 * ticket.matched
        engine = engines[url]
        cached = engine.cached(ids)
        assert promised <= cached
        if engine.block_tokens % 16 == 0:
            assert promised == cached
        if 16 % engine.block_tokens == 0:
            assert cached - promised < 16
        engine.compute(ids)
