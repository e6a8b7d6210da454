"""cpp/proxy/continuation/rest_of_stream.h: where a stream goes on by its ids, and what lacks of its end."""

import pytest

from tests.fakes.continued import COMPLETIONS, counts, got
from tests.fakes.token_engines import Engine, event, sends
from tests.fakes.wire import response
from tests.proxy.test_token_continuation import LENGTH, TOKENS, body, text_of, usage_of

# Of a stream that had "The sea" behind ids 5 and 6: what follows, what the client has, and why it is cut.
BEGUN = (event("The", [5], [1, 2]), event(" sea", [6]))
REST = (event(" is", [7], [1, 2, 5, 6]), event(" blue", [8], end="stop"))


@pytest.mark.parametrize(
    ("begun", "rest", "text", "why"),
    [
        (BEGUN, REST, "The sea is blue", {}),
        (BEGUN, (event(" is", [7], [1, 2, 5]),), "The sea", {"receipt": 1}),
        (BEGUN, (event(" is", [7]),), "The sea", {"receipt": 1}),
        ((*BEGUN, event("!", [2**64])), REST, "The sea!", {"settle": 1}),
        ((*BEGUN, event("!", [-1])), REST, "The sea!", {"settle": 1}),
        ((*BEGUN, event("!", None)), REST, "The sea!", {"settle": 1}),
        ((*BEGUN, event("!", ["x", {}])), REST, "The sea!", {"settle": 1}),
        ((*BEGUN, event("!", [0] * 200_000)), REST, "The sea!", {"settle": 1}),
        # Half a character: its ids are drawn again.
        ((*BEGUN, event("", [240])), REST, "The sea is blue", {}),
        # A token whose text the client has not seen: likewise.
        ((*BEGUN, event("", [9])), REST, "The sea is blue", {}),
    ],
    ids=[
        "whole",
        "short receipt",
        "no receipt",
        "huge id",
        "negative",
        "no ids",
        "no numbers",
        "many",
        "half",
        "held",
    ],
)
def test_what_comes_is_continued_or_cut(harness, begun, rest, text, why):
    words = {1: "Tell", 2: " me", 5: "The", 6: " sea", 9: "</", 240: "\ufffd"}
    first = Engine(harness, sends(*begun), lambda ids: "".join(words[one] for one in ids))
    second = Engine(harness, sends(*rest, then="end"), lambda ids: "".join(words[one] for one in ids))
    router = harness.router(first.url, second.url, **TOKENS)
    data, ended = got(harness.client(router), COMPLETIONS, body(COMPLETIONS))
    if not first.sent:  # it was at the other one
        data, ended = got(harness.client(router), COMPLETIONS, body(COMPLETIONS))
    assert (text_of(data), ended) == (text, not why)
    router.must_rest()
    assert counts(router, "streams_cut_total") == why
    asked = [sent for sent in second.sent if isinstance(sent["prompt"], list)]
    if not why or "receipt" in why:
        assert [(sent["prompt"], sent["max_tokens"]) for sent in asked] == [([1, 2, 5, 6], LENGTH - 2)]
    else:
        assert asked == []


def test_without_detokenize_an_event_of_one_id_is_a_place(harness):
    first = Engine(harness, sends(*BEGUN))
    second = Engine(harness, sends(*REST, then="end"))
    router = harness.router(first.url, second.url, **TOKENS)
    texts = [text_of(got(harness.client(router), COMPLETIONS, body(COMPLETIONS))[0]) for _ in range(2)]
    assert "The sea is blue" in texts


def test_a_stream_that_lacks_its_end_alone_gets_it(harness):
    last = event(" sea", [6], end="stop")
    engines = [Engine(harness, sends(BEGUN[0], last)) for _ in range(2)]
    router = harness.router(*[engine.url for engine in engines], **TOKENS)
    data, ended = got(harness.client(router), COMPLETIONS, body(COMPLETIONS))
    assert ended
    assert text_of(data) == "The sea"
    assert usage_of(data) == [2, 2, 4]
    assert data.endswith(b"data: [DONE]\n\n")
    assert sum(len(engine.sent) for engine in engines) == 1
    router.must_rest()
    assert counts(router, "streams_cut_total") == {}


def test_what_another_worker_takes_says_nothing_of_the_member(harness):
    def rejects(connection, sent):
        if "return_token_ids" in sent:
            connection.send(response(400, b"{}"))
        else:
            sends(event("a", None), then="end")(connection, sent)

    engines = [Engine(harness, rejects), Engine(harness, sends(event("a", [5], [1, 2]), then="end"))]
    router = harness.router(*(engine.url for engine in engines), policy="round_robin", **TOKENS)
    for _ in range(4):
        data, ended = got(harness.client(router), COMPLETIONS, body(COMPLETIONS))
        assert (text_of(data), ended) == ("a", True)
    assert sum("return_token_ids" in sent for engine in engines for sent in engine.sent) == 4


@pytest.mark.parametrize("value", [1, "true", "yes", 5, []])
def test_a_client_gets_what_it_asks_for_however_it_spells_it(harness, value):
    engine = Engine(harness, sends(event("a", [5], [1, 2]), then="end"))
    router = harness.router(engine.url, **TOKENS)
    data, _ = got(harness.client(router), COMPLETIONS, body(COMPLETIONS, return_token_ids=value))
    assert engine.sent[0]["return_token_ids"] == value
    assert b'"token_ids":[5]' in data
