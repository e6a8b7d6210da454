"""A second run against what the client has: whole streams, any cut, and the slow twin."""

import json
from itertools import groupby

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.models import rerun_verifier as twin
from vllm_router import _core_testing as testing

WORDS = st.sampled_from(["a", "b", " ", "é", "\U0001f600", '"', "\\", "\n", "ab", "data: ", "}", "\u2028"])
RANKS = {"reasoning": 0, "content": 1, "refusal": 2, "tool_name": 3, "tool_arguments": 4}
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :")])
CHAT, COMPLETIONS = "chat", "completions"


@st.composite
def said_by_a_choice(draw, api):
    """Tokens of one choice: pairs of a channel and a text."""
    text = [(("content", 0), word) for word in draw(st.lists(WORDS, max_size=6))]
    if api == COMPLETIONS:
        return text
    tokens = [(("reasoning", 0), word) for word in draw(st.lists(WORDS, max_size=4))] + text
    for call in range(draw(st.integers(0, 2))):
        tokens.append((("tool_name", call), draw(st.sampled_from(["f", "get_é"]))))
        tokens += [(("tool_arguments", call), word) for word in draw(st.lists(WORDS, max_size=3))]
    return tokens


def goes_with(event_tokens, token):
    """The token can be in one event with those before it, whose order is that of channels."""

    def place(channel):
        kind, call = channel
        return RANKS[kind] >= RANKS["tool_name"], call, RANKS[kind]

    return place(token[0]) >= place(event_tokens[-1][0])


@st.composite
def batches(draw, tokens):
    """The tokens in groups, each of which is an event."""
    groups = []
    for token in tokens:
        if groups and goes_with(groups[-1], token) and draw(st.booleans()):
            groups[-1].append(token)
        else:
            groups.append([token])
    return groups


def delta_of(tokens, doubled):
    delta, calls = {}, {}
    for channel, group in groupby(tokens, key=lambda token: token[0]):
        kind, call = channel
        text = "".join(word for _, word in group)
        if kind == "tool_name":
            calls[call] = {"index": call, "type": "function", "function": {"name": text}}
        elif kind == "tool_arguments":
            calls.setdefault(call, {"index": call, "function": {}})["function"]["arguments"] = text
        else:
            delta[kind] = text
            if kind == "reasoning" and doubled:
                delta["reasoning_content"] = text
    if calls:
        delta["tool_calls"] = list(calls.values())
    return delta


@st.composite
def streams(draw, api, choices, name, details=False):
    """The data of each event of a run, in pieces of any size, as JSON of any spelling."""
    doubled = draw(st.booleans())
    waiting = []
    for index, tokens in enumerate(choices):
        events = []
        if api == CHAT:
            events.append(
                {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            )
        for number, group in enumerate(draw(batches(tokens))):
            if api == COMPLETIONS:
                said = {"index": index, "text": "".join(word for _, word in group), "finish_reason": None}
            else:
                said = {"index": index, "delta": delta_of(group, doubled), "finish_reason": None}
                for call in said["delta"].get("tool_calls", []):
                    if "name" in call["function"]:
                        call["id"] = f"call_{name}_{number}_{call['index']}"
            if details:
                said["logprobs"] = {"tokens": [word for _, word in group]}
            events.append(said)
        ends_apart = not events or draw(st.booleans())
        if ends_apart:
            nothing = {"text": ""} if api == COMPLETIONS else {"delta": {}}
            events.append({"index": index, **nothing, "finish_reason": None})
        events[-1]["finish_reason"] = "stop"
        waiting.append(events)
    data = []

    def write(body):
        head = {"id": f"id-{name}", "object": "x", "created": len(name), "model": "m"}
        ascii_only, separators = draw(st.booleans()), draw(SEPARATORS)
        data.append(json.dumps({**head, **body}, ensure_ascii=ascii_only, separators=separators))

    while any(waiting):
        events = draw(st.sampled_from([events for events in waiting if events]))
        write({"choices": [events.pop(0)]})
    if draw(st.booleans()):
        write({"choices": [], "usage": {"completion_tokens": 7}})
    return [*data, "[DONE]"]


def as_bytes(data):
    return "".join(f"data: {each}\n\n" for each in data).encode()


@st.composite
def pieces(draw, data):
    """The bytes of a stream, split anywhere; comments are between events."""
    comment = draw(st.sampled_from([b"", b": ping\n\n"]))
    whole = comment + as_bytes(data)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def data_of(body):
    """What `as_bytes` has written."""
    assert body.endswith(b"\n\n") or not body
    events = body.decode().split("\n\n")[:-1]
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event.removeprefix("data: ") for event in events]


def delivered_by(parts):
    delivered = testing.DeliveredText()
    for part in parts:
        delivered.add(part)
    assert delivered.ok
    return delivered


def verify(delivered, parts):
    verifier = testing.RerunVerifier(delivered)
    out = b"".join(verifier.add(part)[1] for part in parts)
    return verifier, data_of(out)


class Client:
    """Accumulates deltas as client libraries do: strings are joined."""

    def __init__(self, data):
        self.said, self.ends, self.roles, self.call_ids, self.heads = {}, {}, {}, {}, set()
        self.usages = self.dones = 0
        for each in data:
            if each == "[DONE]":
                self.dones += 1
                continue
            event = json.loads(each)
            self.heads.add((event["id"], event["created"], event["model"]))
            self.usages += event.get("usage") is not None
            for said in event["choices"]:
                self.take(said)

    def take(self, said):
        index = said["index"]
        transcript = self.said.setdefault(index, twin.Transcript())
        for place in twin.places_of(said):
            transcript.add(place.channel, place.text)
        if said["finish_reason"] is not None:
            self.ends[index] = self.ends.get(index, 0) + 1
        delta = said.get("delta") or {}
        if delta.get("role") is not None:
            self.roles[index] = self.roles.get(index, 0) + 1
        for call in delta.get("tool_calls") or []:
            if call.get("id") is not None:
                self.call_ids.setdefault((index, call["index"]), set()).add(call["id"])

    @property
    def texts(self):
        return {index: transcript.said for index, transcript in self.said.items() if transcript.said}


@st.composite
def runs(draw, details=False):
    api = draw(st.sampled_from([CHAT, COMPLETIONS]))
    choices = draw(st.lists(said_by_a_choice(api), min_size=1, max_size=3))
    return api, choices, draw(streams(api, choices, "first", details))


@given(runs(), st.data())
def test_a_stream_that_is_cut_anywhere_becomes_whole(run, data):
    api, choices, first = run
    cut = data.draw(st.integers(0, len(first) - 1))
    second = data.draw(streams(api, choices, "again"))
    delivered = delivered_by(data.draw(pieces(first[:cut])))
    verifier, out = verify(delivered, data.draw(pieces(second)))
    assert (verifier.state, verifier.problem) == ("caught_up", "none")
    client, undisturbed = Client(first[:cut] + out), Client(first)
    assert client.texts == undisturbed.texts
    assert client.ends == dict.fromkeys(range(len(choices)), 1)
    assert client.roles == undisturbed.roles
    assert client.dones == 1
    assert client.usages == sum('"usage"' in event for event in second)
    assert len(client.heads) == 1
    assert client.call_ids.keys() == undisturbed.call_ids.keys()
    assert all(len(ids) == 1 for ids in client.call_ids.values())


@given(runs(), st.data())
def test_a_stream_is_continued_twice(run, data):
    api, choices, first = run
    cut = data.draw(st.integers(0, len(first) - 1))
    delivered = delivered_by([as_bytes(first[:cut])])
    assume(not delivered.all_ended(len(choices)))
    _, out = verify(delivered, [as_bytes(data.draw(streams(api, choices, "again")))])
    again = data.draw(st.integers(0, len(out)))
    for event in out[:again]:
        delivered.add(as_bytes([event]))
    assert delivered.ok
    assume(not delivered.all_ended(len(choices)))
    verifier, rest = verify(delivered, [as_bytes(data.draw(streams(api, choices, "third")))])
    assert verifier.state == "caught_up"
    client = Client(first[:cut] + out[:again] + rest)
    assert client.texts == Client(first).texts
    assert client.ends == dict.fromkeys(range(len(choices)), 1)
    assert len(client.heads) == 1


@st.composite
def changed(draw, tokens):
    """The tokens with one that is another, is missing, is new, or is of another channel."""
    at = draw(st.integers(0, len(tokens) - 1))
    (kind, call), text = tokens[at]
    how = draw(st.sampled_from(["other", "missing", "new", "channel"]))
    if how == "missing":
        return tokens[:at] + tokens[at + 1 :]
    if how == "new":
        return [*tokens[:at], ((kind, call), "x"), *tokens[at:]]
    if how == "channel" and kind in ("content", "reasoning"):
        return [*tokens[:at], (("refusal", 0), text), *tokens[at + 1 :]]
    return [*tokens[:at], ((kind, call), "x" * len(text)), *tokens[at + 1 :]]


@given(runs(), st.data())
def test_a_client_never_has_two_runs_mixed(run, data):
    api, choices, first = run
    assume(any(choices))
    which = data.draw(st.sampled_from([index for index, tokens in enumerate(choices) if tokens]))
    others = [*choices[:which], data.draw(changed(choices[which])), *choices[which + 1 :]]
    assume(api == CHAT or all(kind == "content" for (kind, _), _ in others[which]))
    cut = data.draw(st.integers(1, len(first) - 1))
    second = data.draw(streams(api, others, "again"))
    delivered = delivered_by([as_bytes(first[:cut])])
    assume(not delivered.all_ended(len(choices)))
    verifier, out = verify(delivered, data.draw(pieces(second)))
    had, has, other = (Client(each) for each in (first[:cut], first[:cut] + out, second))
    for index in range(len(choices)):
        before = had.texts.get(index, b"")
        agrees = other.texts.get(index, b"").startswith(before)
        if verifier.state == "differs" and has.texts.get(index, b"") == before:
            continue  # cut
        assert agrees
        assert other.texts.get(index, b"").startswith(has.texts.get(index, b""))
    if verifier.state == "caught_up":
        assert has.texts == other.texts


@given(runs(), st.data())
def test_one_changed_token_of_what_the_client_has_is_found(run, data):
    api, choices, first = run
    cut = data.draw(st.integers(1, len(first) - 1))
    had = Client(first[:cut]).texts
    assume(had)
    index = data.draw(st.sampled_from(sorted(had)))
    tokens = choices[index]
    # The last token of which the client has a part; all before it are its own.
    transcript, known = twin.Transcript(), 0
    for channel, text in tokens:
        transcript.add(channel, text)
        known += 1
        if len(transcript.said) >= len(had[index]):
            break
    at = data.draw(st.integers(0, known - 1))
    channel, text = tokens[at]
    other = [*tokens[:at], (channel, ("y" if text[0] == "x" else "x") + text[1:]), *tokens[at + 1 :]]
    others = [*choices[:index], other, *choices[index + 1 :]]
    delivered = delivered_by([as_bytes(first[:cut])])
    verifier, out = verify(delivered, [as_bytes(data.draw(streams(api, others, "again")))])
    assert (verifier.state, verifier.problem) in (("differs", "text"), ("differs", "short"))
    assert Client(out).texts.get(index, b"") == b""


@given(st.booleans(), st.data())
def test_events_that_go_on_are_those_of_the_twin(details, data):
    api, choices, first = data.draw(runs(details))
    others = choices
    if data.draw(st.booleans()) and choices[-1]:
        others = [*choices[:-1], data.draw(changed(choices[-1]))]
        assume(api == CHAT or all(kind == "content" for (kind, _), _ in others[-1]))
    cut = data.draw(st.integers(0, len(first) - 1))
    second = data.draw(streams(api, others, "again", details))
    model = twin.Delivered()
    for event in first[:cut]:
        model.add(json.loads(event))
    delivered = delivered_by(data.draw(pieces(first[:cut])))
    assert [choice[:2] + choice[3:] for choice in delivered.choices] == [
        (index, len(choice.transcript.said), choice.ended) for index, choice in model.choices.items()
    ]
    expected, problem, slow = [], "none", twin.Verifier(model)
    try:
        for event in second:
            passed = slow.add(event)
            if passed is not None:
                expected.append(passed)
    except twin.DiffersError as error:
        problem = str(error)
    verifier, out = verify(delivered, data.draw(pieces(second)))
    assert verifier.problem == problem
    assert [each if each == "[DONE]" else json.loads(each) for each in out] == expected


@given(runs(), st.data())
def test_events_behind_the_place_keep_their_bytes(run, data):
    """All but the three values of the head, which are the first run's."""
    _, choices, first = run
    cut = data.draw(st.integers(0, len(first) - 1))
    delivered = delivered_by([as_bytes(first[:cut])])
    assume(not delivered.all_ended(len(choices)))
    _, out = verify(delivered, [as_bytes(first)])
    assert out == first[cut:]
