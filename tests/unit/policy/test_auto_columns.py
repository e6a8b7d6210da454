"""cpp/policy/auto_columns.h: vector code has the bits of the formula, worker by worker."""

import random

import pytest

from vllm_router import _core_testing as testing

PROMPT = 4000
WEIGHTS = {"all 1": [1.0], "all 3": [3.0], "unequal": [1.0, 3.0, 0.7]}


@pytest.mark.parametrize("polled", [False, True], ids=["", "polled"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("workers", [1, 3, 7, 8, 70])
def test_each_worker_costs_what_the_formula_says(workers, weights, polled):
    dice = random.Random(workers)
    policy = testing.PolicyHarness("auto", seed=1)
    terms = []
    told_context = 0
    for i in range(workers):
        url, weight = f"http://w{i}:8000", WEIGHTS[weights][i % len(WEIGHTS[weights])]
        requests, context = dice.randint(1, 90), dice.choice([0, 70, 2**33 + 1])
        waiting, queued = dice.randint(0, requests), dice.choice([0, 37, 2**40 + 1])
        unknown = (dice.randint(0, 5), 0) if polled else (0, 0)
        policy.add(url, weight)
        policy.set_load(url, requests, waiting=waiting, prefill=queued, context=context)
        policy.set_polled(url, *unknown)
        told_context += context
        terms.append(
            {
                "queued": queued,
                "waiting": waiting,
                "requests": requests + unknown[0],
                "context": context,
                "weight": weight,
                "unknown": unknown[0],
            }
        )
    unknown = sum(term["unknown"] for term in terms)
    requests = sum(term["requests"] for term in terms)
    mean_prompt = told_context / (requests - unknown)
    means = {
        "prompt": PROMPT,
        "uncached": PROMPT,
        "least_uncached": PROMPT,
        "mean_prompt": mean_prompt,
        "mean_requests": requests / workers,
        "mean_context": (told_context + unknown * mean_prompt) / workers,
    }
    expected = []
    for term in terms:
        context = term["context"] + term.pop("unknown") * mean_prompt
        expected.append(testing.auto_cost("balanced", **{**term, "context": context}, **means))
    assert policy.costs([], prompt_tokens=PROMPT) == expected
