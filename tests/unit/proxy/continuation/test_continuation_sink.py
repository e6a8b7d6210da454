"""cpp/proxy/continuation/continuation_sink.h: a stream that goes on with a second run, piece by piece."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

DONE = b"data: [DONE]\n\n"
COMMENT = b": keep-alive\n\n"


def event(said, end=None, run="1"):
    choice = {"index": 0, "text": said, "finish_reason": end}
    return b"data: " + json.dumps({"id": run, "choices": [choice]}).encode() + b"\n\n"


ABORT = event("", end="abort")
ERROR = b'data: {"error":{"message":"x","type":"InternalServerError","code":500}}\n\n'


@pytest.fixture
def sink():
    return testing.ContinuationSinkHarness()


def test_a_stream_passes_unchanged(sink):
    for piece in (event("a"), event("b", end="stop"), DONE):
        assert sink.write(piece, False)
    assert sink.write(b"", True)
    assert sink.client == event("a") + event("b", end="stop") + DONE
    assert sink.whole
    assert sink.hooks == []
    assert not sink.may_continue


def test_an_incomplete_event_waits_and_is_not_lost_at_the_end(sink):
    sink.write(event("a") + event("b")[:9], False)
    assert sink.client == event("a")
    sink.write(b"", True)
    assert sink.client == event("a") + event("b")[:9]
    assert sink.whole


def test_a_stream_goes_on_with_a_second_run(sink):
    sink.write(event("The ") + event("sea") + event(" is")[:20], False)
    assert sink.may_continue
    sink.rerun()
    assert sink.write(event("The", run="2"), False)
    assert (sink.client, sink.hooks) == (event("The ") + event("sea"), ["first_event"])
    assert sink.write(event(" sea is", run="2") + event(" blue", end="stop", run="2") + DONE, True)
    assert sink.client == event("The ") + event("sea") + event(" is") + event(" blue", end="stop") + DONE
    assert sink.hooks == ["first_event", "caught_up"]
    assert sink.bytes == len(sink.client)
    assert sink.whole
    assert sink.dropped_bytes == 7


def test_it_goes_on_twice(sink):
    sink.write(event("a"), False)
    sink.rerun()
    sink.write(event("ab", run="2"), False)
    assert sink.client == event("a") + event("b")
    sink.rerun()
    sink.write(event("abc", run="3") + event("", end="stop", run="3") + DONE, True)
    assert sink.client == event("a") + event("b") + event("c") + event("", end="stop") + DONE
    assert sink.hooks == ["first_event", "caught_up"] * 2


def test_a_second_run_that_is_lost_as_well_leaves_no_trace(sink):
    sink.write(event("abc"), False)
    sink.rerun()
    sink.write(event("ab", run="2"), False)
    sink.rerun()
    sink.write(event("abcd", run="3"), False)
    assert sink.client == event("abc") + event("d")


@for_each_row(("failure", "ending"), [(ABORT, "aborted"), (ERROR, "server_error")])
def test_the_client_does_not_see_why_a_second_run_follows(failure, ending):
    sink = testing.ContinuationSinkHarness()
    sink.write(event("a") + failure + DONE, True)
    assert (sink.ending, sink.client, sink.whole) == (ending, event("a"), False)
    assert sink.may_continue
    sink.rerun()
    assert sink.ending == "none"
    sink.write(event("ab", end="stop", run="2") + DONE, True)
    assert sink.client == event("a") + event("b", end="stop") + DONE
    assert sink.whole


@for_each_row("failure", [ABORT, ERROR])
def test_without_a_second_run_the_client_sees_how_it_ended(failure):
    sink = testing.ContinuationSinkHarness()
    sink.write(event("a") + failure + DONE, True)
    sink.release(True)
    assert sink.client == event("a") + failure + DONE
    assert sink.whole


def test_a_second_run_that_aborts_is_held_back_as_well(sink):
    sink.write(event("a"), False)
    sink.rerun()
    sink.write(event("ab", run="2") + ABORT + DONE, True)
    assert (sink.ending, sink.client, sink.whole) == ("aborted", event("a") + event("b"), False)


def test_a_run_that_differs_ends_its_relay(sink):
    sink.write(event("The sea"), False)
    sink.rerun()
    assert not sink.write(event("The sky is", run="2"), False)
    assert sink.problem == "text"
    assert sink.client == event("The sea")
    assert not sink.whole


def test_a_run_that_ends_early_is_no_end(sink):
    sink.write(event("abc"), False)
    sink.rerun()
    assert sink.write(event("a", run="2"), True)
    assert (sink.client, sink.whole) == (event("abc"), False)


@for_each_row(
    "piece", [b'data: {"choices":[{"delta":{"speech":"x"}}]}\n\n', b"x" * (testing.MAX_HELD_EVENT_BYTES + 1)]
)
def test_a_stream_that_is_not_understood_passes_as_it_comes(piece):
    sink = testing.ContinuationSinkHarness()
    sink.write(event("a"), False)
    for each in (piece + ABORT, b"y"):
        sink.write(each, False)
    assert sink.client == event("a") + piece + ABORT + b"y"
    assert not sink.may_continue


def test_what_nothing_follows_is_released_once(sink):
    sink.write(event("a") + event("b")[:5], False)
    sink.release(False)
    sink.release(False)
    assert sink.client == event("a") + event("b")[:5]
    assert not sink.whole


def test_a_comment_is_between_events_and_not_of_the_body(sink):
    assert not sink.write_comment()  # there is no head yet
    sink.write(event("a") + event("b")[:5], False)
    sink.rerun()
    assert sink.write_comment()
    assert sink.client == event("a") + COMMENT
    assert sink.bytes == len(event("a"))
    sink.write(event("ab", end="stop", run="2") + DONE, True)
    assert sink.client == event("a") + COMMENT + event("b", end="stop") + DONE
    assert not sink.write_comment()


def test_a_comment_that_the_client_does_not_take_is_in_front_of_the_next_piece(sink):
    sink.write(event("a"), False)
    sink.rerun()
    sink.set_slow(True)
    assert sink.write_comment()
    assert not sink.write_comment()  # one waits
    assert not sink.write(event("ab", run="2"), False)
    assert not sink.write_comment()
    assert sink.client == event("a")
    sink.set_slow(False)
    assert sink.flush()
    assert sink.client == event("a") + COMMENT + event("b")
    assert sink.write_comment()


def test_a_comment_that_waits_goes_on_with_what_is_released(sink):
    sink.write(event("a") + event("b")[:5], False)
    sink.set_slow(True)
    assert sink.write_comment()
    sink.set_slow(False)
    sink.release(False)
    assert sink.flush()
    assert sink.client == event("a") + COMMENT + event("b")[:5]


def test_no_comment_is_within_a_piece(sink):
    sink.set_slow(True)
    assert not sink.write(event("a"), False)
    assert not sink.write_comment()
    assert sink.flush()
    assert sink.write_comment()


WORDS = st.lists(st.sampled_from(["a", "b", "é", "ab"]), min_size=1, max_size=8)


@given(WORDS, st.data())
def test_pieces_may_end_anywhere_in_both_runs(words, data):
    sink = testing.ContinuationSinkHarness()

    def write(body):
        at = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
        for a, b in zip([0, *at], [*at, len(body)], strict=True):
            assert sink.write(body[a:b], False)

    text = "".join(words)
    first = b"".join(event(word) for word in words)
    write(first[: data.draw(st.integers(0, len(first)))])
    sink.rerun()
    size = data.draw(st.integers(1, 3))
    again = [text[at : at + size] for at in range(0, len(text), size)]
    write(b"".join(event(part, run="1") for part in again) + event("", end="stop") + DONE)
    said = [json.loads(each[6:])["choices"][0] for each in sink.client.split(b"\n\n")[:-2]]
    assert "".join(choice["text"] for choice in said) == text
    assert [choice["finish_reason"] for choice in said[-2:]][-1] == "stop"
    assert sink.client.endswith(DONE)
