"""Loads on two engines under each policy: tokens found in caches, time of the whole load and to first tokens.

Each engine has a processor of its own, as each has a GPU elsewhere. Without that, a load is done soonest by
one engine that takes it all, whatever the policy: an engine that is given both processors uses both, and
two engines take more time of them than one (benchmarks/policies.md has the figures). The
model is large enough that a prompt costs more than a step. The two controls, one engine alone and an even
split, show whether a machine measures policies: where one engine is quickest, it does not.

The policies take turns in every round. Times are printed and not compared, since other programs may run.
`python -m tests.engines.simulated_loads` sends the same loads to simulated workers.
"""

import os
from collections.abc import Iterator

import pytest

from tests.engines.conftest import Fleet
from tests.engines.loads import LOADS, Run, median, send, table
from tests.engines.processes import BLOCK, LARGE, Engine
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(3000)]

POLICIES = {
    "auto": ("--block-size", str(BLOCK)),
    "cache_aware": (),
    "least_load": (),
    "consistent_hash": (),
}
ONE_ENGINE, EVEN_SPLIT = "one engine", "round_robin"
CONTROLS = (ONE_ENGINE, EVEN_SPLIT)
ROUNDS = 3


@pytest.fixture(scope="module")
def pinned(fleet: Fleet) -> Iterator[Fleet]:
    """Engines with the larger model and a processor each; those of the other tests end for them."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("compares policies on two engines, each of which needs a processor")
    fleet.stop()
    made = Fleet([Engine(f"large-{core}", LARGE, core) for core in cores[:2]])
    try:
        yield made
    finally:
        made.stop()


def run_once(fleet: Fleet, load: str, policy: str) -> Run:
    """With empty caches and a router that knows nothing."""
    engines = fleet.engines[:1] if policy == ONE_ENGINE else fleet.engines
    name = EVEN_SPLIT if policy == ONE_ENGINE else policy
    with fleet.router(name, *POLICIES.get(policy, ()), engines=engines) as router:
        for engine in fleet.engines:
            engine.forget_prefixes()
        before = [engine.cpu_seconds() for engine in engines]
        run = send(router, load)
        run.cpu = max(engine.cpu_seconds() - seconds for engine, seconds in zip(engines, before, strict=True))
        eventually(lambda: router.load() == 0)
    return run


@pytest.fixture(scope="module")
def runs(pinned: Fleet) -> dict[tuple[str, str], list[Run]]:
    """Of each load and policy some runs."""
    made: dict[tuple[str, str], list[Run]] = {}
    order = [*POLICIES, *CONTROLS]
    for _ in range(ROUNDS):
        order = order[1:] + order[:1]  # each is the first once
        for load in LOADS:
            for policy in order:
                made.setdefault((load, policy), []).append(run_once(pinned, load, policy))
    return made


def test_the_table(runs, print_table):
    """For the reader."""
    print_table.extend(table(runs, POLICIES))


@pytest.mark.parametrize("load", LOADS)
def test_every_request_is_answered_whatever_the_policy(runs, load):
    every = (*POLICIES, *CONTROLS)
    counts = {policy: {len(run.answers) for run in runs[load, policy]} for policy in every}
    expected = {"multi-turn": 48, "burst": 48, "mixed": 24 + 18 + 6}[load]
    assert counts == {policy: {expected} for policy in every}


def test_auto_spreads_a_burst_of_equal_prompts(runs):
    """cache_aware sent all 48 to one engine, since each held the whole prompt of the others."""
    for run in runs["burst", "auto"]:
        assert max(run.shares()) <= 30


def test_auto_finds_in_caches_nearly_what_the_best_policy_finds(runs):
    """In conversations; a burst has next to nothing to find, and in the mixed load waiting may cost more."""
    cached = {policy: median(runs["multi-turn", policy], Run.cached) for policy in POLICIES}
    assert cached["auto"] >= max(cached.values()) - 0.1
