"""cpp/holdout/conversation_table.h: turns are added up by conversation, each of which counts once."""

import math

import pytest

from vllm_router import _core_testing as testing

SECOND = 1_000_000_000


def turn(conversation, second, **facts):
    return testing.Turn(conversation, begin_ns=second * SECOND, end_ns=(second + 1) * SECOND, **facts)


def closed_after(*turns):
    table = testing.ConversationTable()
    closed = [one for each in turns for one in table.add(each)]
    return closed + table.close_idle(10**18)


def test_a_conversation_is_closed_after_15_minutes_of_silence():
    table = testing.ConversationTable()
    assert table.add(turn(1, 0)) == []
    assert table.add(turn(2, 800)) == []
    assert table.close_idle(900 * SECOND) == []
    assert len(table.close_idle(901 * SECOND)) == 1
    assert table.open == 1


def test_a_turn_ends_the_silence():
    table = testing.ConversationTable()
    for second in (0, 800, 1600):
        table.add(turn(1, second))
        assert table.close_idle((second + 890) * SECOND) == []
    (closed,) = table.close_idle(2501 * SECOND)
    assert closed.turns == 3


def test_it_is_closed_after_64_turns_and_later_turns_do_not_count():
    table = testing.ConversationTable()
    counts = [len(table.add(turn(1, second))) for second in range(100)]
    assert counts == [0] * 63 + [1] + [0] * 36
    assert table.open == 0
    assert table.close_idle(10**18) == []


def test_a_conversation_that_comes_back_after_its_silence_does_not_count_again():
    table = testing.ConversationTable()
    table.add(turn(1, 0))
    assert len(table.close_idle(1000 * SECOND)) == 1
    assert table.add(turn(1, 2000)) == []
    assert table.close_idle(10**18) == []


def test_at_the_limit_the_one_that_was_silent_longest_is_closed_early():
    table = testing.ConversationTable(open=2)
    table.add(turn(1, 0, body_bytes=1))
    table.add(turn(2, 1, body_bytes=2))
    table.add(turn(1, 2, body_bytes=1))
    (closed,) = table.add(turn(3, 3))
    assert closed.first_body_bytes == 2
    assert table.open == 2


def test_only_the_newest_closed_ones_are_remembered():
    table = testing.ConversationTable(silence_ns=SECOND, remembered=2)
    for conversation in (1, 2, 3):
        table.add(turn(conversation, 0))
        table.close_idle(10**18)
    for conversation in (2, 3, 1):
        table.add(turn(conversation, 0))
    assert table.open == 1


def test_its_first_request_is_the_one_that_began_first():
    (closed,) = closed_after(
        turn(1, 5, body_bytes=500, first_token_s=2.0),
        turn(1, 0, body_bytes=100, first_token_s=1.0),
        turn(1, 9, body_bytes=900, first_token_s=4.0),
    )
    assert closed.first_body_bytes == 100
    assert closed.first_turn_log_s == pytest.approx(0)
    assert closed.later_turns_log_s == pytest.approx((math.log(2) + math.log(4)) / 2)


def test_times_are_those_of_streams_alone():
    (closed,) = closed_after(turn(1, 0), turn(1, 1, first_token_s=math.e))
    assert closed.first_turn_log_s is None
    assert closed.later_turns_log_s == pytest.approx(1)
    (closed,) = closed_after(turn(1, 0, first_token_s=math.e), turn(1, 1))
    assert closed.first_turn_log_s == pytest.approx(1)
    assert closed.later_turns_log_s is None


def test_tokens_are_sums_over_the_turns_that_report_both():
    (closed,) = closed_after(
        turn(1, 0, prompt_tokens=100, cached_tokens=0),
        turn(1, 1, prompt_tokens=200),
        turn(1, 2, prompt_tokens=300, cached_tokens=250),
        turn(1, 3, prompt_tokens=50, cached_tokens=60),
    )
    assert (closed.prompt_tokens, closed.cached_tokens, closed.reporting) == (450, 300, 3)


def test_one_failed_turn_makes_it_a_failed_conversation():
    (closed,) = closed_after(turn(1, 0), turn(1, 1, has_failed=True), turn(1, 2))
    assert closed.has_failed
    (closed,) = closed_after(turn(1, 0), turn(1, 1))
    assert not closed.has_failed


def test_it_has_the_arm_of_its_turns():
    held, other = closed_after(turn(1, 0, is_held_out=True), turn(2, 1))
    assert (held.is_held_out, other.is_held_out) == (True, False)
