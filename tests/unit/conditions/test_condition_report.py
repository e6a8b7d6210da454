"""cpp/conditions/condition_report.h: one sentence for all that is wrong."""

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
