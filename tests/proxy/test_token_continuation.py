"""Streams that go on at another worker by their token ids: what clients get, and what workers are sent."""

import contextlib
import json
import re

import pytest

from tests.fakes.continued import CHAT, COMPLETIONS, HEAD, ON, counts, got
from tests.fakes.token_engines import Engine, event
from tests.fakes.wire import chunk, response
from vllm_router.testing import SimulatedWorker

TOKENS = {**ON, "continue_streams": "tokens", "retry_budget": 1}
LENGTH = 24


def body(path, number=0, **more):
    asked = {"prompt": f"tell {number}"}
    if path == CHAT:
        asked = {"messages": [{"role": "user", "content": f"tell {number}"}]}
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": LENGTH}
    return json.dumps({"model": "m", **asked, **options, "temperature": 1, **more}).encode()


def plain(data):
    """Without what differs between two requests: their ids, times and hits of caches."""
    data = re.sub(rb'"id":"[^"]*"', b'"id":""', data)
    data = re.sub(rb'"cached_tokens":\d+', b'"cached_tokens":0', data)
    return re.sub(rb'"created":\d+', b'"created":0', data)


def text_of(data):
    events = [json.loads(each[6:]) for each in data.decode().split("\n\n") if each.startswith("data: {")]
    choices = [event["choices"][0] for event in events if event.get("choices")]
    return "".join(each.get("text") or each.get("delta", {}).get("content") or "" for each in choices)


def usage_of(data):
    events = [json.loads(each[6:]) for each in data.decode().split("\n\n") if each.startswith("data: {")]
    (counted,) = [event["usage"] for event in events if event.get("usage")]
    return [counted[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")]


@pytest.fixture
def simulated():
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(SimulatedWorker(engine="instant", model="m", **options))


@pytest.mark.parametrize("wide", [False, True], ids=["words", "divided characters"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "rerun", [{"continue_rerun_tokens": 0, "temperature": 0}, {"temperature": 1}], ids=["cold", "warm"]
)
def test_a_cut_stream_is_that_of_an_undisturbed_run_at_every_token(harness, simulated, path, wide, rerun):
    rerun = dict(rerun)
    temperature = rerun.pop("temperature")
    first, second = (simulated(wide_text=wide) for _ in range(2))
    router = harness.router(first.url, second.url, **{**TOKENS, **rerun})
    alone = harness.client(harness.router(second.url))
    lost = 0
    for cut in range(1, LENGTH):
        first.set_faults(close_after_tokens=cut)
        for turn in range(2):  # one of them is at the first worker
            sent = body(path, f"{cut}-{turn}", temperature=temperature)
            whole = got(alone, path, sent)[0]
            data, ended = got(harness.client(router), path, sent)
            assert ended, cut
            assert text_of(data) == text_of(whole), cut
            assert usage_of(data) == usage_of(whole), cut
            assert b'_ids":[' not in data, cut
            if not wide:
                assert plain(data) == plain(whole), cut
        lost += 1
    router.must_rest()
    continued = counts(router, "streams_continued_total")["lost"]
    assert continued >= lost
    assert counts(router, "streams_cut_total") == {}
    assert counts(router, "continue_memory_bytes") == {}
    text = router.server.metrics_text()
    assert f'continued_total{{why="lost",method="tokens"}} {continued}\n' in text
    assert "recomputed_tokens_total 0\n" not in text


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_undisturbed_stream_has_the_bytes_that_it_has_without(harness, simulated, path):
    worker = simulated(wide_text=True)
    on, off = harness.router(worker.url, **TOKENS), harness.router(worker.url)
    sent = body(path)
    assert plain(got(harness.client(on), path, sent)[0]) == plain(got(harness.client(off), path, sent)[0])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_client_that_asks_for_ids_gets_those_of_the_whole(harness, simulated, path):
    first, second = simulated(), simulated()
    router = harness.router(first.url, second.url, **TOKENS)
    first.set_faults(close_after_tokens=9)
    for turn in range(2):
        sent = body(path, turn, return_token_ids=True)
        whole, _ = got(harness.client(harness.router(second.url)), path, sent)
        data, ended = got(harness.client(router), path, sent)
        assert ended
        assert plain(data) == plain(whole)
        assert data.count(b'"prompt_token_ids":[') == 1


def test_a_seed_stop_or_echo_is_no_stream_of_tokens(harness, simulated):
    first, second = simulated(), simulated()
    router = harness.router(first.url, second.url, **TOKENS)
    for number, more in enumerate([{"stop": ["x"]}, {"echo": True}, {"n": 2}, {"presence_penalty": 1}]):
        first.set_faults(close_after_tokens=3)
        second.set_faults(close_after_tokens=3)
        assert not got(harness.client(router), COMPLETIONS, body(COMPLETIONS, number, **more))[1], more
    assert counts(router, "streams_continued_total") == {}


def test_an_engine_that_ignores_the_ids_is_not_believed(harness, simulated):
    first, second = (simulated(ignore_prompt_ids=True) for _ in range(2))
    router = harness.router(first.url, second.url, **TOKENS)
    for worker in (first, second):
        worker.set_faults(close_after_tokens=9)
    data, ended = got(harness.client(router), CHAT, body(CHAT))
    whole, _ = got(harness.client(harness.router(simulated().url)), CHAT, body(CHAT))
    assert not ended
    assert text_of(whole).startswith(text_of(data))
    assert len(text_of(data)) == 9 * 4
    router.must_rest()
    assert counts(router, "streams_cut_total") == {"receipt": 1}


def test_a_run_that_differs_is_followed_by_the_ids(harness, simulated):
    first, second = simulated(), simulated(wide_text=True)  # which says something else
    router = harness.router(first.url, second.url, **TOKENS)
    first.set_faults(close_after_tokens=20)
    for turn in range(2):
        sent = body(COMPLETIONS, turn, temperature=0)
        assert got(harness.client(router), COMPLETIONS, sent)[1]
    router.must_rest()
    assert 'method="tokens"} 1\n' in router.server.metrics_text()
    assert counts(router, "streams_cut_total") == {}


def refuses(connection, sent):
    if "return_token_ids" in sent:
        connection.send(response(400, b'{"error":{"message":"return_token_ids"}}'))
    else:
        connection.send(HEAD + event("a", None) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def test_an_engine_that_rejects_the_member_is_asked_without_it(harness):
    engine = Engine(harness, refuses)
    router = harness.router(engine.url, **TOKENS)
    for _ in range(2):
        data, ended = got(harness.client(router), COMPLETIONS, body(COMPLETIONS))
        assert (ended, text_of(data)) == (True, "a")
    assert ["return_token_ids" in sent for sent in engine.sent] == [True, False, False]  # it is known then
    router.must_rest()


@pytest.mark.parametrize("value", [1, "true", []])
def test_what_a_client_says_of_ids_in_its_own_way_is_left_to_the_engine(harness, value):
    engine = Engine(harness, refuses)
    router = harness.router(engine.url, **TOKENS)
    sent = body(COMPLETIONS, return_token_ids=value)
    assert harness.client(router).ask("POST", COMPLETIONS, body=sent).status == 400
    assert [one["return_token_ids"] for one in engine.sent] == [value]
    router.must_rest()


def test_a_bad_request_stays_one(harness):
    engine = Engine(harness, lambda connection, _: connection.send(response(400, b'{"bad":1}')))
    router = harness.router(engine.url, **TOKENS)
    for _ in range(2):
        reply = harness.client(router).ask("POST", COMPLETIONS, body=body(COMPLETIONS))
        assert (reply.status, reply.body) == (400, b'{"bad":1}')
    assert len(engine.sent) == 4
    router.must_rest()


def test_without_memory_the_client_sees_no_ids_all_the_same(harness, simulated):
    worker = simulated()
    router = harness.router(worker.url, **{**TOKENS, "continue_memory_mb": 1})
    sent = body(COMPLETIONS, padding="x" * (1 << 20))
    data, ended = got(harness.client(router), COMPLETIONS, sent)
    assert ended
    assert b'_ids":[' not in data
    assert "vllm_router_streams_not_remembered_total 1\n" in router.server.metrics_text()


def test_a_stream_of_more_ids_than_are_kept_is_cut(harness, simulated):
    first, second = simulated(), simulated()
    router = harness.router(first.url, second.url, **{**TOKENS, "continue_max_tokens": 10})
    for worker in (first, second):
        worker.set_faults(close_after_tokens=12)
    assert not got(harness.client(router), COMPLETIONS, body(COMPLETIONS))[1]
    assert counts(router, "streams_cut_total") == {"settle": 1}
