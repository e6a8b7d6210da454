"""python/vllm_router/replay/agent_readers.py: sessions of agents as others record them."""

import pytest

from tests.unit.python.replay.test_readers import written
from tests.unit.python.replay.test_sessions import waits
from vllm_router.replay.readers import read_trace, recognise
from vllm_router.replay.trace import TraceError


def request(t, tokens, ids, **members):
    return {"t": t, "type": "n", "model": "m", "in": tokens, "out": 9, "hash_ids": ids, **members}


def subagent(*requests, **members):
    return {"t": 5.0, "type": "subagent", "status": "completed", "requests": [*requests], **members}


def weka(*requests, **members):
    return {"id": "trace_1", "block_size": 64, "hash_id_scope": "local", "requests": [*requests], **members}


FAMILY = weka(
    request(0.0, 100, [1, 2], api_time=3.0),
    request(10.0, 140, [1, 2, 3], type="s", api_time=4.0, think_time=6.5),
    subagent(request(14.0, 65, [9]), request(20.0, 66, [9, 8], think_time=2.0)),
    subagent(request(14.0, 67, [9, 7])),
    request(60.0, 200, [1, 2, 3, 4], api_time=1.0),
    subagent(request(62.0, 68, [5]), status="async_launched"),
    request(1000.0, 201, [1, 2, 3, 4]),
)


def by_tokens(trace, values):
    return dict(zip(trace.input_tokens.tolist(), values.tolist(), strict=True))


def test_a_session_of_weka_is_a_closed_loop(tmp_path):
    trace = read_trace(written(tmp_path, [FAMILY]), strict=True)
    assert (trace.block_size, trace.skipped) == (64, 0)
    assert waits(trace) == {
        100: set(), 140: {100}, 65: {140}, 66: {65}, 67: {140},
        200: {140, 66, 67}, 68: {200}, 201: {200},
    }  # fmt: skip
    # As recorded, else since the response before; none behind subagents, whose end is not recorded.
    pauses = {100: 0, 140: 6.5, 65: 0, 66: 2, 67: 0, 200: 0, 68: 0, 201: 600}
    assert by_tokens(trace, trace.pause_s) == pauses
    assert set(trace.session_ids.tolist()) == {0}
    assert trace.output_tokens.tolist() == [9] * 8


def test_ids_of_weka_are_a_sessions_own_unless_they_are_global(tmp_path):
    def blocks(scope):
        line = weka(request(0.0, 64, [1]), request(1.0, 128, [2, 1]), hash_id_scope=scope)
        trace = read_trace(written(tmp_path, [line, line]), agents=1)
        return [trace.blocks(row).tolist() for row in range(4)]

    first, turned, again, _ = blocks("local")
    assert first != again
    assert turned[1] not in first  # it comes behind another block
    assert blocks("global")[0] == blocks("global")[2]


ROUND = {"session_id": "claude:1", "input_tokens_total": 1100, "prefix_tokens": 0, "output_tokens": 30}


def event(kind, second):
    return {"event_type": kind, "timestamp": f"2026-06-01T05:{second // 60:02}:{second % 60:02}.500Z"}


def rounds(*times_and_tokens, session="claude:1"):
    return [
        {**ROUND, "session_id": session, "round_index": number, "input_tokens_total": tokens,
         "prefix_tokens": cached, "timing_events": [event("tool_result", sent), event("tool_call", ended)]}
        for number, (sent, ended, tokens, cached) in enumerate(times_and_tokens)
    ]  # fmt: skip


def test_a_session_of_tracelab_continues_its_prompts(tmp_path):
    # The third prompt is a compaction of which the provider had 600 tokens.
    lines = rounds((0, 4, 1100, 0), (9, 11, 2100, 0), (1800, 1801, 1600, 600))
    other = rounds((1, 2, 1099, 0), session="codex:2")
    trace = read_trace(written(tmp_path, [lines[1], *other, lines[0], lines[2]]), strict=True)
    assert trace.block_size == 512
    assert waits(trace) == {1100: set(), 2100: {1100}, 1600: {2100}, 1099: set()}
    assert by_tokens(trace, trace.pause_s) == {1100: 0, 2100: 5, 1600: 600, 1099: 0}
    rows = {tokens: row for row, tokens in enumerate(trace.input_tokens.tolist())}
    first, second, third = (trace.blocks(rows[tokens]).tolist() for tokens in (1100, 2100, 1600))
    assert (len(first), len(second), len(third)) == (2, 4, 3)
    assert second[:2] == first
    assert third[:1] == first[:1]
    assert not set(third[1:]) & set(second)
    assert not set(trace.blocks(rows[1099]).tolist()) & {*first, *second, *third}
    assert trace.session_ids[rows[1099]] != trace.session_ids[rows[1100]]


@pytest.mark.parametrize(("lines", "name"), [([FAMILY], "weka"), (rounds((0, 1, 9, 0)), "tracelab")])
def test_the_first_line_tells_the_format(lines, name, tmp_path):
    assert recognise(written(tmp_path, lines).read_text().splitlines()[0]) == name


def test_so_many_agents_work_at_once(tmp_path):
    lines = [weka(request(0.0, 100 + number, [1])) for number in range(5)]
    trace = read_trace(written(tmp_path, lines), agents=2)
    assert waits(trace) == {100: set(), 101: set(), 102: {100}, 103: {101}, 104: {102}}


def test_a_limit_counts_requests(tmp_path):
    trace = read_trace(written(tmp_path, [FAMILY, FAMILY, {"not": "read"}]), limit=9, strict=True)
    assert len(trace) == 9


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (weka(), "requests is empty; a session has at least one request"),
        (weka(requests=3), "requests is 3; it must be a list of objects"),
        (weka(request(0.0, 64, [1]), block_size=0), "block_size is 0; it must be from 1 to 1048576"),
        (
            weka(request(0.0, 64, [1]), block_size=32),
            "block_size is 32, and sessions before have 64",
        ),
        (
            weka(request(0.0, 64, [1]), hash_id_scope="team"),
            "hash_id_scope is 'team'; it must be local",
        ),
        (weka(request(0.0, 64, [1], type="x")), "type is 'x'; it must be n, s or"),
        (
            weka(subagent(subagent())),
            "type is 'subagent'; it must be n, s or",
        ),
        (weka(request(0.0, 64, [1, 2])), "it has 2 blocks for 64 tokens; 1 blocks of 64 hold them"),
        (weka({"t": 0.0, "type": "n", "in": 64, "out": 1}), "hash_ids is missing"),
        (weka(request(0.0, 64, [1]), request("now", 64, [1])), "t is 'now'; it must be a number"),
    ],
)
def test_a_line_of_weka_that_does_not_fit_is_told(tmp_path, line, sentence):
    path = written(tmp_path, [FAMILY, line])
    with pytest.raises(TraceError) as error:
        read_trace(path, strict=True)
    assert str(error.value).startswith(f"{path}, line 2: {sentence}")
    assert len(read_trace(path)) == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"session_id": None}, "session_id is None; it must be a text"),
        ({"input_tokens_total": 0}, "input_tokens_total is 0; it must be from 1"),
        ({"prefix_tokens": None}, "prefix_tokens is None; it must be a whole number"),
        ({"timing_events": 5}, "timing_events is 5; it must be a list of objects"),
        ({"timing_events": [event("usage_report", 1)]}, "timing_events has no input and no output"),
        (
            {"timing_events": [{"event_type": "text", "timestamp": "noon"}]},
            "timestamp is 'noon'; it",
        ),
    ],
)
def test_a_line_of_tracelab_that_does_not_fit_is_told(tmp_path, changes, sentence):
    good, other = rounds((0, 4, 1100, 0), (9, 11, 2100, 0))
    path = written(tmp_path, [good, {**other, **changes}])
    with pytest.raises(TraceError) as error:
        read_trace(path, strict=True)
    assert str(error.value).startswith(f"{path}, line 2: {sentence}")
    assert len(read_trace(path)) == 1


def test_an_object_over_several_lines_is_told_how_to_join_it(tmp_path):
    with pytest.raises(TraceError, match="a JSON object must be one line, as jq -c writes it"):
        read_trace(written(tmp_path, '{\n"block_size": 64\n}\n'))
