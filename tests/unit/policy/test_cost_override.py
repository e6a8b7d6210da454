"""cpp/policy/cost_override.h, as Router.select(override=...) takes it."""

import re

import pytest

from vllm_router import Router

URLS = ["http://a:8000", "http://b:8000"]
PROMPT = list(range(640))


def costs(router: Router, **request) -> dict[str, float]:
    return {row.url: row.cost for row in router.explain(token_ids=PROMPT, **request).workers}


def test_one_request_is_decided_as_a_router_with_these_options_would():
    shared = [(0, 30)]
    router = Router(policy="kv_logit", worker_urls=URLS, seed=1)
    for override in (
        {"overlap_weight": 2.5},
        {"shared_cache_multiplier": 0.5},
        {"overlap_weight": 0, "shared_cache_multiplier": 1},
    ):
        own = Router(policy="kv_logit", worker_urls=URLS, seed=1, **override)
        assert costs(router, shared_ranges=shared, override=override) == costs(own, shared_ranges=shared)
        assert costs(router, shared_ranges=shared) != costs(own, shared_ranges=shared)


def test_a_temperature_draws_in_this_request_alone():
    router = Router(policy="kv_logit", worker_urls=URLS, seed=1)
    open_ticket = router.select(token_ids=PROMPT)  # so that one worker is busier
    request = {"token_ids": range(5000, 5016)}
    drawn = {router.select(**request, override={"router_temperature": 100}).reason for _ in range(64)}
    assert drawn == {"lowest_cost", "sampled"}
    assert router.select(**request).reason == "lowest_cost"
    open_ticket.finish()


@pytest.mark.parametrize(
    ("override", "error", "words"),
    [
        ({"router_temperature": 101}, ValueError, "router_temperature is 101.000000; it is the temperature"),
        ({"shared_cache_multiplier": -0.5}, ValueError, "between 0 and 1 (default 0)"),
        ({"overlap_weight": float("nan")}, ValueError, "overlap_weight is nan; it is"),
        ({"overlap_wait": 1}, ValueError, "(did you mean overlap_weight?)"),
        ({3: 1}, TypeError, "override holds 3; names of options are str"),
        ({"overlap_weight": "2"}, TypeError, "override holds '2' as 'overlap_weight'; it must be a number"),
        ({"overlap_weight": True}, TypeError, "override holds True as 'overlap_weight'"),
        ({"overlap_weight": None}, TypeError, "override holds None as 'overlap_weight'"),
        ([("overlap_weight", 1)], TypeError, "override is of type list; pass a dict"),
    ],
)
def test_what_cannot_be_is_said(override, error, words):
    router = Router(policy="kv_logit", worker_urls=URLS)
    with pytest.raises(error, match=re.escape(words)):
        router.select(token_ids=PROMPT, override=override)


@pytest.mark.parametrize("given", [{"override": {}}, {"shared_ranges": []}])
def test_a_policy_without_a_cost_says_so(given):
    (name,) = given
    for policy in ("random", "auto", "kv_overlap"):
        router = Router(policy=policy, worker_urls=URLS)
        for call in (router.select, router.explain):
            with pytest.raises(ValueError, match=f"{name} is given, which only kv_logit and kv_aware read"):
                call(token_ids=PROMPT, **given)


@pytest.mark.parametrize(
    "ranges", [[(2, 1)], [(-1, 4)], [(0, 2**32)], [(0, 1, 2)], [5], [("0", "4")], [(0.0, 4.0)]]
)
def test_ranges_that_are_none(ranges):
    router = Router(policy="kv_logit", worker_urls=URLS)
    with pytest.raises(ValueError, match=r"shared_ranges holds .*; it must hold pairs \(begin, end\)"):
        router.select(token_ids=PROMPT, shared_ranges=ranges)
    with pytest.raises(TypeError):
        router.select(token_ids=PROMPT, shared_ranges=7)


def test_a_value_may_change_the_dict_that_it_is_in():
    """It was freed while it was read."""

    class Clearing:
        def __float__(self):
            override.clear()
            raise ValueError

    override = {"router_temperature" * 2: Clearing()}
    with pytest.raises(TypeError, match="it must be a number"):
        Router(policy="kv_logit", worker_urls=URLS).select(token_ids=PROMPT, override=override)
