"""cpp/routing/prefill_pace.h: how fast workers compute prompts, as far as that can be told."""

import pytest

from vllm_router import _core_testing as testing


def learned(alone=20, tokens=20_000, micros=2_000_000, streamed=1000, whole=0):
    pace = testing.PrefillPace()
    pace.follow(alone=alone, tokens=tokens, micros=micros, streamed=streamed, whole=whole)
    return pace


def test_the_rate_is_that_of_prompts_that_found_no_other():
    assert learned().tokens_per_second == 10_000


def test_few_requests_are_no_rate():
    assert learned(alone=19).tokens_per_second is None
    assert learned(micros=0).tokens_per_second is None
    assert testing.PrefillPace().tokens_per_second is None


@pytest.mark.parametrize(("whole", "known"), [(0, True), (111, True), (112, False), (10**9, False)])
def test_it_is_not_known_where_responses_come_in_one_piece(whole, known):
    """Their prompts count as waiting until the end, however long ago they were computed."""
    assert (learned(whole=whole).tokens_per_second is not None) == known


def test_responses_in_one_piece_are_forgotten_with_time():
    pace = learned(streamed=1000, whole=1000)
    assert pace.tokens_per_second is None
    counts = {"alone": 20, "tokens": 20_000, "micros": 2_000_000, "whole": 1000}
    pace.follow(streamed=1000, passed=1500.0, **counts)
    assert pace.tokens_per_second is None  # both weigh less
    pace.follow(streamed=1100, passed=1.0, **counts)
    assert pace.tokens_per_second == 10_000


def test_the_rate_follows_an_engine_that_became_slower():
    pace = learned(alone=200, tokens=200_000, micros=20_000_000)
    for n in range(1, 11):
        pace.follow(
            alone=200 + 100 * n, tokens=200_000 + 100_000 * n, micros=20_000_000 * (1 + n), streamed=1000
        )
    assert pace.tokens_per_second == pytest.approx(5_000, rel=0.02)


def test_workers_are_one_mean():
    sum_of_both = testing.PrefillPace()
    for pace in (learned(alone=12), learned(alone=12, tokens=60_000)):
        assert pace.tokens_per_second is None  # each has seen too few
        sum_of_both.add(pace)
    assert sum_of_both.tokens_per_second == 20_000


def test_counts_that_begin_again_take_nothing_back():
    pace = learned()
    pace.follow()
    assert pace.tokens_per_second == 10_000
