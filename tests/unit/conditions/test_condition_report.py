"""cpp/conditions/condition_report.h: one sentence for all that is wrong, one state for each worker."""

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("texts", "workers", "sentence"),
    [
        ([], 1, "The worker serves."),
        ([], 3, "All 3 workers serve."),
        (["w is down."], 3, "w is down."),
        (["w is down.", "v is slow.", "u hangs."], 3, "w is down. And 2 more."),
    ],
    ids=["one worker", "three workers", "one condition", "three conditions"],
)
def test_the_worst_is_said_and_how_many_more(texts, workers, sentence):
    assert testing.status_sentence(texts, workers) == sentence


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], ("serves", "")),
        ([("all_reject", "", "")], ("rejects", "")),
        ([("worker_rejects", "w", "")], ("rejects", "")),
        ([("worker_not_found", "w", "")], ("responds_404", "")),
        ([("model_fails", "w", "m")], ("fails", "m")),
        ([("worker_is_slow", "w", ""), ("model_fails", "w", "m")], ("slow", "")),
        ([("worker_rejects", "v", ""), ("worker_is_down", "v", "")], ("serves", "")),
        ([("peer_sync_down", "", "")], ("serves", "")),
    ],
    ids=["none", "all", "rejects", "404", "fails", "the first counts", "another worker", "a service"],
)
def test_a_worker_has_the_state_of_its_worst_condition(conditions, state):
    assert testing.worker_state("w", conditions) == state
