"""cpp/routing/prompt_holders.h: which workers hold a prompt, without a decision."""

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

DOCUMENT = "".join(f"Sentence {number} of the document. " for number in range(200))


def router_of(policy, workers=6):
    return Router(policy, [f"http://w{number}:1" for number in range(workers)])


def send(router, prompt, worker):
    """The worker has served the prompt."""
    others = [url for url in router.worker_urls if url != worker]
    for url in others:
        router.set_healthy(url, False)
    with router.select(prompt=prompt) as ticket:
        assert ticket.worker_url == worker
    for url in others:
        router.set_healthy(url, True)


@pytest.mark.parametrize("policy", ["auto", "cache_aware", "vllm_cache_aware", "kv_overlap"])
def test_the_largest_share_is_first_and_nothing_is_counted(policy):
    router = router_of(policy)
    whole, half, quarter, *_ = router.worker_urls
    send(router, DOCUMENT[: len(DOCUMENT) // 4], quarter)
    send(router, DOCUMENT[: len(DOCUMENT) // 2], half)
    send(router, DOCUMENT, whole)
    before = router.stats()
    holders = testing.prompt_holders(router, DOCUMENT)
    assert [url for url, _share in holders] == [whole, half, quarter]
    assert [share for _url, share in holders] == pytest.approx([1, 0.5, 0.25], abs=0.05)
    assert testing.prompt_holders(router, "another text " * 100) == []
    assert router.stats() == before


def test_four_are_found_at_most():
    router = router_of("kv_overlap")
    for number, url in enumerate(router.worker_urls):
        send(router, DOCUMENT[: len(DOCUMENT) * (number + 1) // 6], url)
    holders = testing.prompt_holders(router, DOCUMENT)
    assert [url for url, _share in holders] == router.worker_urls[:1:-1]


@pytest.mark.parametrize("policy", ["least_load", "round_robin", "consistent_hash"])
def test_a_policy_without_prompts_knows_none(policy):
    router = router_of(policy)
    send(router, DOCUMENT, router.worker_urls[0])
    assert testing.prompt_holders(router, DOCUMENT) == []
