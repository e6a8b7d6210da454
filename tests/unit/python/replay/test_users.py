"""python/vllm_router/replay/users.py: chats are those that its opening describes."""

import itertools

import numpy as np
import pytest

from vllm_router import demo
from vllm_router.replay import Fleet, run
from vllm_router.replay import users as made
from vllm_router.replay.workloads import generate


def chats_of(trace):
    """The requests of each chat, in order."""
    return [np.flatnonzero(trace.session_ids == key) for key in np.unique(trace.session_ids)]


@pytest.mark.parametrize("name", ["users", "demo"])
def test_a_turn_continues_prompt_and_response_and_waits_for_them(name):
    trace = generate(name, 1, 40, users=8)
    for chat in chats_of(trace):
        for before, after in itertools.pairwise(chat.tolist()):
            stream = [*trace.blocks(before), *trace.output_blocks(before)]
            assert trace.blocks(after)[: len(stream)].tolist() == stream
            first, last = trace.after_offsets[after : after + 2]
            assert trace.after_rows[first:last].tolist() == [before]


@pytest.mark.parametrize(("name", "users"), [("users", 200), ("demo", 12)])
def test_so_many_users_chat_at_once(name, users):
    trace = generate(name, 1)
    assert int((np.diff(trace.after_offsets) == 0).sum()) == users


def test_the_demo_of_the_replay_is_the_demo():
    trace = generate("demo", 1)
    assert (made.DEMO_BLOCK, made.DEMO_RESPONSE_TOKENS) == (demo.BLOCK_TOKENS, demo.ANSWER_TOKENS)
    assert made.DEMO_THINK_S == demo.THINK_SECONDS
    assert (len(trace), trace.block_size) == (240 * 8, 16)
    low, high = made.DEMO_THINK_S
    pauses = trace.pause_s[np.diff(trace.after_offsets) > 0]
    assert low <= pauses.min() < pauses.max() <= high
    # All begin within half a second.
    begins = trace.arrival_s[np.diff(trace.after_offsets) == 0]
    assert begins.max() - begins.min() < high


def test_a_slow_fleet_gets_fewer_requests():
    (usual,) = run(generate("users", 1, 60, users=20), ["random"], Fleet(workers=2))
    (slow,) = run(generate("users", 1, 60, users=20), ["random"], Fleet(workers=2, speeds=[0.05, 0.05]))
    assert slow["rate"] < usual["rate"]
    assert slow["finished"] == usual["finished"] == 300
