"""python/vllm_router/replay/shared.py: who shares a fleet, and how much each of them sends."""

import numpy as np
import pytest

from vllm_router.replay import generate
from vllm_router.replay.shared import (
    BATCH,
    BLOCK,
    DOCUMENT_TOKENS,
    FLOOD,
    INTERACTIVE,
    LIGHT,
    TENANTS,
    alone,
    batch_requests,
    merged,
    of_class,
    of_tenant,
)


def small(count: int, begin: float):
    arrival = begin + np.arange(count, dtype=np.float64)
    return alone("small", arrival, np.full(count, 4 * BLOCK), np.full(count, BLOCK))


def test_traces_side_by_side_keep_their_order_and_share_nothing():
    trace = merged("both", [of_class(small(3, 0.5), BATCH), of_tenant(small(2, 0.0), "a")])
    assert trace.arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5, 2.5]
    assert trace.priority_classes.tolist() == [1, 2, 1, 2, 2]
    tenants = [trace.tenant_names[number] for number in trace.tenants]
    assert tenants == ["a", "anonymous", "a", "anonymous", "anonymous"]
    assert len(np.unique(trace.block_ids)) == len(trace.block_ids) == 20
    assert not set(trace.block_ids.tolist()) & set(trace.output_block_ids.tolist())
    assert len(set(trace.session_ids.tolist())) == 5
    assert not trace.is_closed_loop


def test_waits_stay_within_their_trace():
    trace = generate("tenants", 1, 200, users=3)
    for row in range(len(trace)):
        before = trace.after_rows[trace.after_offsets[row] : trace.after_offsets[row + 1]]
        assert (before < row).all()
        assert (trace.tenants[before] == trace.tenants[row]).all()


def test_classes_have_one_batch_request_for_two_turns():
    trace = generate("classes", 1, 800)
    batch = trace.priority_classes == BATCH
    assert ((trace.priority_classes == INTERACTIVE) | batch).all()
    assert batch.sum() == pytest.approx(len(trace) / 3, abs=1)
    assert trace.input_tokens[batch].mean() == pytest.approx(4000, rel=0.01)
    assert (trace.output_tokens[batch] == 400).all()
    # Both go on for about the same time.
    assert trace.arrival_s[batch].max() == pytest.approx(trace.span_s, rel=0.2)


def test_a_backlog_comes_at_once():
    assert (batch_requests(np.random.default_rng(1), 50, None).arrival_s == 0).all()


def test_tenants_ask_about_their_own_documents():
    trace = generate("tenants", 1, 900, users=4)
    assert set(trace.tenant_names) == {FLOOD, LIGHT, *(f"tenant-{number}" for number in range(1, TENANTS))}
    counts = dict(zip(trace.tenant_names, np.bincount(trace.tenants), strict=True))
    assert counts[FLOOD] == 2 * counts["tenant-1"] == 200
    first_blocks = {
        name: {
            int(trace.blocks(row)[0])
            for row in np.flatnonzero(trace.tenants == number)
            if trace.input_tokens[row] >= DOCUMENT_TOKENS
        }
        for number, name in enumerate(trace.tenant_names)
    }
    assert len(first_blocks["tenant-1"]) <= 20
    assert not first_blocks["tenant-1"] & first_blocks["tenant-2"]


def test_a_tenant_has_so_many_requests_open():
    trace = generate("tenants", 1, 900, users=4)
    waits = np.diff(trace.after_offsets) > 0
    free = {
        name: int((~waits & (trace.tenants == number)).sum())
        for number, name in enumerate(trace.tenant_names)
    }
    assert free[FLOOD] == 32
    assert free["tenant-3"] == 4
