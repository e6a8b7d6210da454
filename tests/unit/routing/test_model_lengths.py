"""cpp/routing/model_lengths.h: what the prompts of a model have taught is used for that model alone."""

import json

import pytest

from vllm_router import Router

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 3000}]})


def estimate(router, model="m", **given):
    """The tokens that a prompt is taken to have."""
    with router.select(**(given or {"body": BODY.replace('"m"', f'"{model}"')})):
        return sum(worker.queued_prefill_tokens for worker in router.workers)


def teach(router, tokens, times=60):
    for number in range(times):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"{number:04}" * 750}]})
        router.select(body=body).finish(prompt_tokens=tokens)


@pytest.mark.parametrize("policy", ["cache_aware", "vllm_cache_aware", "auto"])
def test_what_responses_tell_of_a_model_is_believed_of_its_next_prompts(policy):
    """mending row 34: four bytes a token were believed of every model."""
    router = Router(policy=policy, worker_urls=["http://a:1"])
    assert estimate(router) == pytest.approx(3000 / 4, rel=0.01)
    teach(router, 1500)  # as of Chinese
    fresh = json.dumps({"model": "m", "messages": [{"role": "user", "content": "y" * 3000}]})
    assert estimate(router, body=fresh) == pytest.approx(3000 / 2, rel=0.05)
    other = fresh.replace('"m"', '"another"')
    assert estimate(router, body=other) == pytest.approx(3000 / 4, rel=0.01)


def test_token_ids_count_as_they_are():
    router = Router(policy="auto", worker_urls=["http://a:1"])
    teach(router, 1500)
    assert estimate(router, token_ids=list(range(500))) == 500


def test_nothing_is_learned_of_a_prompt_with_an_image():
    router = Router(policy="auto", worker_urls=["http://a:1"])
    image = {"type": "image_url", "image_url": {"url": "http://x/y"}}
    text = {"type": "text", "text": "z" * 3000}
    for _ in range(50):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [text, image]}]})
        router.select(body=body).finish(prompt_tokens=90_000)
    assert estimate(router) == pytest.approx(3000 / 4, rel=0.01)


def test_a_ticket_that_outlives_its_router_may_still_be_finished():
    router = Router(policy="auto", worker_urls=["http://a:1"])
    ticket = router.select(body=BODY)
    del router
    ticket.finish(prompt_tokens=1500)
