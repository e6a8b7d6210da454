"""cpp/continuation/token_event.h: usage of the rest of a stream, as of the whole."""

import json

import pytest

from vllm_router import _core_testing as testing


def whole(usage):
    return json.loads(testing.usage_of_whole(json.dumps(usage), 10, 4, 3))


def test_a_usage_is_that_of_one_run():
    said = {
        "prompt_tokens": 14,
        "total_tokens": 19,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 14},
        "completion_tokens_details": {"reasoning_tokens": 1, "other": 2},
    }
    assert whole(said) == {
        "prompt_tokens": 10,
        "total_tokens": 19,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 4, "other": 2},
    }
    assert whole(said | {"prompt_tokens_details": None})["prompt_tokens_details"] is None


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": 1}])
def test_another_shape_stays_as_it_is(usage):
    assert whole(usage) == usage
