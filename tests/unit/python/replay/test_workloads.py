"""python/vllm_router/replay/workloads.py: each workload is the traffic that its page says."""

import itertools

import numpy as np
import pytest

from vllm_router.replay.trace import TraceError
from vllm_router.replay.workloads import CLOSED_LOOPS, WORKLOADS, generate

# Sessions of agents are long.
SMALL = {"agents": 6}


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_seed_makes_the_same_trace_again_and_another_seed_another(name):
    first, again, other = (generate(name, seed, SMALL.get(name, 300)) for seed in (1, 1, 2))
    for field in ("arrival_s", "input_tokens", "output_tokens", "block_ids", "output_block_ids"):
        assert np.array_equal(getattr(first, field), getattr(again, field)), field
    # Times of a closed loop are nominal until it is played.
    assert name in CLOSED_LOOPS or not np.array_equal(first.arrival_s, other.arrival_s)
    assert not np.array_equal(first.input_tokens, other.input_tokens) or name in ("rag",)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_trace_is_well_formed(name):
    trace = generate(name, 3, SMALL.get(name, 300))
    block = trace.block_size
    assert trace.arrival_s[0] == 0
    assert (np.diff(trace.arrival_s) >= 0).all()
    # Only full blocks have ids, and every full one has; a request's blocks are all different.
    assert (np.diff(trace.block_offsets) == trace.input_tokens // block).all()
    both = (trace.input_tokens.astype(int) + trace.output_tokens) // block
    assert (np.diff(trace.output_offsets) == both - trace.input_tokens // block).all()
    for request in range(len(trace)):
        blocks = [*trace.blocks(request), *trace.output_blocks(request)]
        assert len(set(blocks)) == len(blocks)


# requests, mean prompt, mean answer, ideal hit share
@pytest.mark.parametrize(
    ("name", "requests", "prompt", "answer", "ideal"),
    [
        ("chat", (14_000, 15_500), (2600, 3700), (235, 260), (0.79, 0.86)),
        ("rag", (6000, 6000), (7373, 7373), (1000, 1000), (0.945, 0.955)),
        ("adv", (10_000, 10_000), (4750, 5050), (180, 200), (0.56, 0.60)),
        ("hot", (12_000, 12_000), (2900, 3100), (385, 410), (0.80, 0.84)),
    ],
)
def test_its_figures_are_the_published_ones(name, requests, prompt, answer, ideal):
    trace = generate(name, 1)
    measured = [len(trace), trace.input_tokens.mean(), trace.output_tokens.mean(), trace.ideal_hit_share]
    for value, (low, high) in zip(measured, [requests, prompt, answer, ideal], strict=True):
        assert low <= value <= high, (name, measured)


def test_a_chats_next_turn_continues_prompt_and_answer():
    trace = generate("chat", 1, 2500)
    turns = 0
    for session in np.unique(trace.session_ids)[:200]:
        requests = np.flatnonzero(trace.session_ids == session)
        for before, after in itertools.pairwise(requests):
            stream = [*trace.blocks(before), *trace.output_blocks(before)]
            assert trace.blocks(after)[: len(stream)].tolist() == stream
            assert trace.arrival_s[after] - trace.arrival_s[before] >= 5
            turns += 1
    assert turns > 100


def test_users_of_a_rag_group_share_its_documents_and_repeat_their_prompts():
    trace = generate("rag", 1, 1600)
    prompts = {}
    for request, user in enumerate(trace.session_ids.tolist()):
        prompts.setdefault(user, set()).add(tuple(trace.blocks(request).tolist()))
    assert len(prompts) == 750
    assert all(len(different) == 1 for different in prompts.values())
    by_user = {user: next(iter(different)) for user, different in prompts.items()}
    assert by_user[0][:48] == by_user[4][:48]
    assert not set(by_user[0][48:]) & set(by_user[4])
    assert not set(by_user[0]) & set(by_user[5])


@pytest.mark.parametrize(("name", "shared", "share"), [("adv", 64, 0.3), ("hot", 32, 0.6)])
def test_a_viral_prefix_is_in_its_share_of_the_prompts(name, shared, share):
    trace = generate(name, 1, 3000)
    # The prefix that most prompts have, at its full length.
    last_blocks = [tuple(trace.blocks(i)[:shared].tolist()) for i in range(len(trace))]
    commonest = max(set(last_blocks), key=last_blocks.count)
    assert len(commonest) == shared
    assert last_blocks.count(commonest) / len(trace) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: generate("chats"),
            "workload is 'chats'; it must be one of "
            "chat, rag, adv, hot, agents, users, demo, classes, tenants",
        ),
        (lambda: generate("rag", agents=4), "agents is 4, and workload rag has none; leave it out"),
        (lambda: generate("users", agents=4), "agents is 4, and workload users has none; leave it out"),
        (lambda: generate("agents", users=4), "users is 4, and workload agents has none; leave it out"),
        (lambda: generate("demo", users=0), "users is 0; it must be a whole number from 1 to 100000"),
        (lambda: generate("rag", 1, 0), "the size of workload rag is 0; at least 1 is needed"),
    ],
)
def test_a_mistake_is_one_sentence(call, sentence):
    with pytest.raises(TraceError) as error:
        call()
    assert str(error.value) == sentence
