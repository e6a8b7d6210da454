"""python/vllm_router/replay/trace.py: what is known of a trace, and traces made of traces."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router.replay.trace import Trace, TraceError, reuse_distances


def trace_of(prompts, block_size=16, arrival_s=None, answers=None):
    def ragged(lists):
        offsets = np.cumsum([0] + [len(blocks) for blocks in lists])
        return np.array([b for blocks in lists for b in blocks], np.uint64), offsets.astype(np.int64)

    ids, offsets = ragged(prompts)
    times = np.arange(len(prompts), dtype=np.float64) if arrival_s is None else np.array(arrival_s, float)
    answer_ids, answer_offsets = ragged(answers) if answers else (None, None)
    return Trace(
        name="made",
        block_size=block_size,
        arrival_s=times,
        input_tokens=np.array([len(blocks) * block_size + 1 for blocks in prompts], np.uint32),
        output_tokens=np.full(len(prompts), 3, np.uint32),
        block_ids=ids,
        block_offsets=offsets,
        output_block_ids=answer_ids,
        output_offsets=answer_offsets,
    )


prompts = st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=12)


@given(prompts)
def test_the_ideal_share_is_what_one_endless_cache_would_serve(lists):
    trace = trace_of(lists)
    seen, hits = set(), 0
    for blocks, tokens in zip(lists, trace.input_tokens.tolist(), strict=True):
        own = list(dict.fromkeys(blocks))
        if len(own) != len(blocks):  # a chain never holds a block twice
            return
        matched = next((i for i, block in enumerate(blocks) if block not in seen), len(blocks))
        hits += max(0, min(matched * 16, tokens - 16))
        seen |= set(blocks)
    assert trace.ideal_hit_share == pytest.approx(hits / int(trace.input_tokens.sum()))


@given(st.lists(st.integers(0, 12), max_size=80))
def test_a_reuse_distance_counts_the_blocks_since_the_last_use(ids):
    slow = []
    for i, block in enumerate(ids):
        if block in ids[:i]:
            last = max(j for j in range(i) if ids[j] == block)
            slow.append(len(set(ids[last:i])))
    assert reuse_distances(np.array(ids, np.uint64)).tolist() == slow


def test_the_working_set_serves_nine_tenths_of_all_reuse():
    # Nine blocks come back at once, one after ten others:  a a b b ... i i  X ..10.. X
    ids = [n for n in range(9) for _ in range(2)] + [100, *range(200, 210), 100]
    assert trace_of([ids]).working_set_tokens == 1 * 16
    assert trace_of([[*ids, 100 + 1, *range(300, 310), 101]]).working_set_tokens == 11 * 16


def test_without_reuse_the_working_set_is_a_thousand_blocks():
    assert trace_of([[1, 2], [3]]).working_set_tokens == 16_000
    assert trace_of([[], []]).ideal_hit_share == 0


def test_times_are_stretched_to_a_rate():
    trace = trace_of([[1], [2], [3], [4]], arrival_s=[5, 6, 8, 9])
    assert trace.rate == 1.0
    assert trace.at_rate(2).arrival_s.tolist() == [0, 0.5, 1.5, 2]
    assert trace.faster(0.5).arrival_s.tolist() == [0, 2, 6, 8]


def test_a_stretched_trace_knows_what_the_first_one_knew():
    trace = trace_of([[1, 2], [1, 2], [3]])
    trace.prepare()
    faster = trace.faster(2).poisson(5, 1)
    assert {"ideal_hit_share", "working_set_tokens"} <= vars(faster).keys()
    assert faster.ideal_hit_share == trace_of([[1, 2], [1, 2], [3]]).ideal_hit_share
    assert faster.as_core()["block_ids"] is trace.as_core()["block_ids"]
    assert "ideal_hit_share" not in vars(trace.head(2))
    assert trace.head(2).ideal_hit_share != trace.ideal_hit_share


def test_random_arrivals_keep_order_rate_and_seed():
    trace = trace_of([[n] for n in range(5000)])
    random = trace.poisson(20, seed=1)
    assert random.arrival_s[0] == 0
    assert (np.diff(random.arrival_s) >= 0).all()
    assert random.rate == pytest.approx(20, rel=0.1)
    assert (random.arrival_s == trace.poisson(20, seed=1).arrival_s).all()
    assert (random.arrival_s != trace.poisson(20, seed=2).arrival_s)[1:].all()
    assert random.block_ids is trace.block_ids


def test_taking_requests_takes_their_blocks():
    trace = trace_of([[1, 2], [], [3], [4, 5, 6]], answers=[[7], [8], [], [9, 10]])
    taken = trace.take(np.array([3, 0, 1]))
    assert [taken.blocks(i).tolist() for i in range(3)] == [[4, 5, 6], [1, 2], []]
    assert [taken.output_blocks(i).tolist() for i in range(3)] == [[9, 10], [7], [8]]
    assert trace.head(2).block_ids.tolist() == [1, 2]
    assert trace.head(9) is trace


def test_a_block_0_keeps_its_name_in_the_core():
    ids = trace_of([[0, 1], [0]]).as_core()["block_ids"]
    assert ids[0] == ids[2]
    assert ids[0] not in (0, 1)


def test_the_core_gets_contiguous_arrays_from_time_0():
    core = trace_of([[1, 2], [3]], arrival_s=[5, 7], answers=[[4], []]).as_core()
    assert core["arrival_s"].tolist() == [0, 2]
    assert {name: array.dtype.name for name, array in core.items() if name != "block_size"} == {
        "arrival_s": "float64",
        "input_tokens": "uint32",
        "output_tokens": "uint32",
        "block_ids": "uint64",
        "block_offsets": "int64",
        "output_block_ids": "uint64",
        "output_block_offsets": "int64",
    }
    assert all(array.flags.c_contiguous for name, array in core.items() if name != "block_size")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda t: t.at_rate(0), "rate is 0 requests a second; it must be above 0"),
        (lambda t: t.poisson(-1, 1), "rate is -1 requests a second; it must be above 0"),
        (
            lambda t: t.faster(float("nan")),
            "the trace cannot be replayed nan times as fast; give a number above 0",
        ),
        (lambda t: t.head(0), "limit is 0; at least 1 request is needed"),
    ],
)
def test_a_mistake_is_one_sentence(call, sentence):
    with pytest.raises(TraceError) as error:
        call(trace_of([[1], [2]]))
    assert str(error.value) == sentence


def test_of_a_closed_loop_pauses_are_stretched_and_those_left_out_are_not_waited_for():
    trace = dataclasses.replace(
        trace_of([[1], [1, 2], [3], [1, 2, 3]]),
        after_rows=np.array([0, 1, 2]),
        after_offsets=np.array([0, 0, 1, 1, 3]),
        pause_s=np.array([0.0, 6.0, 0.0, 3.0]),
    )
    assert trace.is_closed_loop
    assert trace.faster(3).pause_s.tolist() == [0, 2, 0, 1]
    part = trace.take(np.array([1, 2, 3]))
    assert part.after_rows.tolist() == [0, 1]
    assert part.after_offsets.tolist() == [0, 0, 0, 2]
    assert part.pause_s.tolist() == [6, 0, 3]
    assert trace.head(2).after_offsets.tolist() == [0, 0, 1]
    assert {"after_rows", "after_offsets", "pause_s"} <= trace.as_core().keys()
    with pytest.raises(TraceError, match="made is a closed loop"):
        trace.poisson(1, 1)
