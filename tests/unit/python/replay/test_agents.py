"""python/vllm_router/replay/agents.py: sessions are those that its opening describes."""

import dataclasses
import statistics

import numpy as np
import pytest

from vllm_router.replay import agents
from vllm_router.replay.agents import BLOCK, KINDS


def sessions_of(kind, count, monkeypatch, seed=1):
    monkeypatch.setattr(agents, "KINDS", (dataclasses.replace(kind, share=1.0),))
    maker = agents._Maker(np.random.default_rng(seed))
    return [maker.session() for _ in range(count)]


def parent_of(turns):
    """The parent's turns: each subagent's are between two of them, and the last is the parent's."""
    places = [len(turns) - 1]
    while turns[places[-1]].after:
        places.append(turns[places[-1]].after[0])
    return places[::-1]


def firsts_of_subagents(turns):
    """The places of the first turns of subagents."""
    parents = set(parent_of(turns))
    return [place for place, turn in enumerate(turns) if place not in parents and turn.after[0] in parents]


def shared(one, other):
    """Blocks that two prompts begin with."""
    length = min(len(one), len(other))
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else length


@pytest.fixture(scope="module")
def many():
    maker = agents._Maker(np.random.default_rng(1))
    return [maker.session() for _ in range(200)]


def test_medians_are_the_published_ones(many):
    parents = [[turns[place] for place in parent_of(turns)] for turns in many]
    assert statistics.median(map(len, parents)) == pytest.approx(43, rel=0.06)
    assert 20 <= min(map(len, parents)) < max(map(len, parents)) <= 100
    tokens = statistics.median(turn.input_tokens for parent in parents for turn in parent)
    assert tokens == pytest.approx(142_000, rel=0.05)
    assert statistics.median(turn.output_tokens for turns in many for turn in turns) == pytest.approx(
        444, rel=0.05
    )
    assert np.mean([bool(firsts_of_subagents(turns)) for turns in many]) == pytest.approx(0.44, abs=0.06)
    pauses = [turn.pause_s for turns in many for turn in turns]
    assert 1 <= min(pauses) < max(pauses) <= 600


def test_more_than_96_percent_of_the_prompts_could_be_cached():
    trace = agents.agents_workload(np.random.default_rng(1), 24, 8)
    assert 0.955 < trace.ideal_hit_share < 0.98


def test_a_turn_continues_the_prompt_and_the_response_before_it(many):
    for turns in many[:20]:
        for place in set(range(1, len(turns))) - set(firsts_of_subagents(turns)):
            before = turns[turns[place].after[0]]
            stream = np.concatenate((before.blocks, before.output_blocks))
            assert shared(turns[place].blocks, stream) == len(stream)


def test_a_parent_waits_for_all_of_its_subagents(many):
    joins = 0
    for turns in many[:40]:
        awaited = {other for turn in turns for other in turn.after}
        assert awaited == set(range(len(turns) - 1))  # only the last turn is waited for by none
        joins += sum(len(turn.after) > 1 for turn in turns)
    assert joins > 5


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_subagents_share_with_each_other_and_with_their_parent_what_was_measured(kind, monkeypatch):
    turns = max(sessions_of(kind, 20, monkeypatch), key=lambda turns: len(firsts_of_subagents(turns)))
    first, *others = [turns[place] for place in firsts_of_subagents(turns)]
    with_parent = shared(first.blocks, turns[0].blocks) * BLOCK / kind.first_prompt
    assert with_parent == pytest.approx(kind.of_parent, abs=2 * BLOCK / kind.first_prompt)
    assert others
    for other in others:
        assert shared(first.blocks, other.blocks) == kind.subagents_first_prompt // BLOCK
    keys = {turn.key for turn in turns}
    assert (len(keys) > 1) == kind.subagents_have_a_key


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_sessions_of_a_kind_share_the_part_that_was_measured(kind, monkeypatch):
    one, other = sessions_of(kind, 2, monkeypatch)
    assert shared(one[0].blocks, other[0].blocks) == int(kind.shared * kind.first_prompt) // BLOCK
