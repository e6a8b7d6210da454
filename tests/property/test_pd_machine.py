"""PdMachine against its slow twin: any order of events gives the same actions."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import pd_machine as twin
from vllm_router import _core_testing as testing

EVENTS = [name for name in testing.pd_events() if name != "planned"]
# Events that go on, so that a story comes further than its first failure.
USUAL = ["p_ok_whole", "p_ok_whole", "p_ok_without", "d_sent", "d_sent", "d_head", "d_first_byte", "d_done"]
WHILE_CHOOSING = {"no_retry", "no_other_pair", "client_gone", "worker_removed", "handoff_late"}
ENDINGS = {"no_retry", "client_gone", "drain_deadline", "worker_removed", "client_too_slow"}

FLAGS = ("p_readable", "p_failed", "early", "timed_out", "server_error")
FACTS = st.fixed_dictionaries({name: st.booleans() for name in FLAGS})
STEPS = st.lists(
    st.tuples(
        st.sampled_from(USUAL)
        | st.sampled_from([name for name in EVENTS if name not in ENDINGS])
        | st.sampled_from(EVENTS),
        FACTS,
        st.integers(0, 3),
    ),
    max_size=40,
)


def plans(machine, engine):
    """What a host may plan now: (kind, order, rebindable)."""
    if engine == "sglang":
        return [("pair", "sglang", False)]
    if engine == "paired":  # P2P-NCCL, MoRI-IO
        return [("pair", "serial", False), ("pair", "concurrent", False)]
    found = [("local", "serial", False)]
    if machine.retry[0] == "decode_only":
        found.append(("decode_only", "serial", True))
    if machine.retry[0] != "local":
        found += [
            ("bypass", "serial", False),
            ("pair", "serial", False),
            ("pair", "serial", True),
            ("pair", "concurrent", False),
        ]
    return found


def planned(kind, order, rebindable, engine):
    can_prefill = engine == "any"
    return {"kind": kind, "order": order, "rebindable": rebindable, "decode_can_prefill": can_prefill}


def seen(machine):
    names = ("p", "d", "client", "choosing", "responded", "holds_claim", "over", "retry")
    return {name: getattr(machine, name) for name in names}


@pytest.mark.parametrize("engine", ["any", "sglang", "paired"])
@settings(max_examples=500)
@given(cancel=st.sampled_from(["auto", "always", "never"]), steps=STEPS)
def test_the_actions_are_the_twin_s(engine, cancel, steps):
    machine, slow = testing.PdMachine(cancel), twin.PdMachine(cancel)
    for event, facts, number in steps:
        if slow.choosing and event not in WHILE_CHOOSING:
            found = plans(slow, engine)
            event, facts = "planned", planned(*found[number % len(found)], engine)
        actions = machine.step(event, **facts)
        assert set(actions) == slow.step(event, **facts), event
        assert seen(machine) == seen(slow)


def test_stories_reach_every_action():
    """So that the comparison above compares something: a few thousand random stories have all actions."""
    rng = random.Random(1)
    found = set()
    for _ in range(6000):
        slow = twin.PdMachine(rng.choice(["auto", "always", "never"]))
        engine = rng.choice(["any", "any", "any", "sglang", "paired"])
        for _ in range(25):
            event = rng.choice(rng.choice([USUAL, EVENTS]))
            facts = {name: rng.random() < 0.5 for name in FLAGS}
            if slow.choosing and event not in WHILE_CHOOSING:
                event, facts = "planned", planned(*rng.choice(plans(slow, engine)), engine)
            found |= slow.step(event, **facts)
    assert found == set(testing.pd_actions())
