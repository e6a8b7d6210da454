"""cpp/admission/pool_room.h: what of a worker's counters and reports counts."""

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture
def pool():
    """Before one worker; a higher class has just come."""
    made = testing.ClassPool(1)
    made.set_time(60_000)
    assert made.try_pass("interactive")
    made.chosen()
    return made


def test_a_worker_without_requests_and_reports_has_room_for_all(pool):
    assert pool.closed("interactive") == pool.closed("default") == pool.closed("batch") == []


@pytest.mark.parametrize(
    ("load", "default", "batch"),
    [
        ({"requests": 9}, {}, {}),
        ({"requests": 9, "waiting": 1}, {}, {"waiting": 1}),
        ({"requests": 9, "waiting": 1, "queued_prefill": 2048}, {"prefill": 1}, {"prefill": 1}),
    ],
    ids=["running", "waiting", "prefill"],
)
def test_own_counters(pool, load, default, batch):
    pool.set_load(0, **load)
    assert pool.reasons("default") == default
    assert pool.reasons("batch") == batch
    assert pool.reasons("interactive") == {}


@pytest.mark.parametrize(
    ("report", "default", "batch"),
    [
        ({"kv_use": 0.3}, {}, {}),
        ({"kv_use": 0.6}, {}, {"kv": 1}),
        ({"kv_use": 0.96}, {"kv": 1}, {"kv": 1}),
        ({"kv_use": 0.1, "others_queued": 2}, {"waiting": 1}, {"waiting": 1}),
        ({"kv_use": -1.0}, {}, {}),
        ({"kv_use": -1.0, "others_queued": 2}, {"waiting": 1}, {"waiting": 1}),
    ],
    ids=["low", "half", "full", "others", "none", "others-only"],
)
def test_reports(pool, report, default, batch):
    pool.set_load(0, requests=1)
    pool.set_report(0, **report)
    assert pool.reasons("default") == default
    assert pool.reasons("batch") == batch


@pytest.mark.parametrize(("queued", "default"), [(0, {}), (1, {"waiting": 1})])
def test_requests_of_peers_wait_where_the_engine_has_them_in_its_queue(pool, queued, default):
    pool.set_peers(0, requests=3, waiting=3)
    assert pool.reasons("default") == pool.reasons("batch") == {}  # without a report
    pool.set_load(0, requests=1)
    pool.set_report(0, kv_use=0.1, others_queued=queued)
    assert pool.reasons("default") == pool.reasons("batch") == default


def test_responses_in_one_piece_that_are_past_their_prompts_do_not_wait(pool):
    pool.set_load(0, requests=2, waiting=2, queued_prefill=5000)
    assert pool.reasons("batch") == {"prefill": 1}
    pool.add_whole(0, 4000, 1)
    assert pool.reasons("batch") == {"waiting": 1}
    pool.add_whole(0, 1000, 1)
    assert pool.reasons("batch") == {}
    pool.add_whole(0, 1000, -1)
    assert pool.reasons("batch") == {"waiting": 1}


def test_the_ceiling_of_an_idle_only_class_lapses_where_it_is_alone(pool):
    pool.set_report(0, 0.6)
    pool.set_load(0, requests=1)
    assert pool.reasons("batch") == {"kv": 1}
    pool.set_time(60_000 + 30_000)
    assert pool.reasons("batch") == {}
