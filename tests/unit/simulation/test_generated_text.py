"""cpp/simulation/generated_text.h: responses that go on from ids, wide characters, stop strings."""

import json
import re

import pytest

from tests.unit.simulation.apis import parse
from vllm_router import _core_testing as testing

WIDE = {"wide_text": True}
PLAIN = {"wide_text": False}
OLDER = {"wide_text": True, "ignore_prompt_ids": True}
APIS = ["completions", "chat", "generate"]
TOKENS = 60


def request(api, prompt=None, tokens=TOKENS, model=WIDE, **sampling):
    """Streams with ids. `prompt`: the ids to begin with."""
    body = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    sampling = {"max_tokens": tokens, **sampling}
    if api == "generate":
        body |= {"token_ids": prompt or [1, 2], "sampling_params": sampling, "output_mode": "text"}
    elif api == "completions":
        body |= {"prompt": prompt or "Hello", **sampling}
    else:
        body |= {"messages": [{"role": "user", "content": "Hello"}], **sampling}
        if prompt:
            body["kv_transfer_params"] = {"prompt_token_ids": prompt}
    return parse(api, body, **model)


class Streamed:
    """A stream's texts and ids by event, and what its first and last ones say."""

    def __init__(self, parsed):
        data = testing.sim_stream(parsed, "1", 0)
        events = [json.loads(event[6:]) for event in data.split("\n\n") if event.startswith("data: {")]
        self.usage = events.pop()["usage"]
        first = events[0]
        if "delta" in first["choices"][0]:
            events = events[1:]  # has the role
        self.prompt = first.get("prompt_token_ids") or first["choices"][0].get("prompt_token_ids")
        choices = [event["choices"][0] for event in events]
        self.end = {name: choices[-1][name] for name in ("finish_reason", "stop_reason")}
        self.ids = [choice["token_ids"] for choice in choices[:-1]]
        self.texts = [each.get("text", each.get("delta", {}).get("content")) for each in choices[:-1]]
        self.text = "".join(self.texts)


def text_of(ids):
    return json.loads(testing.sim_answer(parse("detokenize", {"tokens": ids}), "1", 0))["prompt"]


def flat(ids):
    return [one for some in ids for one in some]


@pytest.mark.parametrize("api", APIS)
def test_a_prompt_with_ids_of_a_response_goes_on_as_that(api):
    whole = Streamed(request(api))
    cuts = 0
    for cut in range(1, TOKENS):
        begun = flat(whole.ids[:cut])
        if text_of(begun).endswith("\ufffd"):
            continue
        rest = Streamed(request(api, [*whole.prompt, *begun], TOKENS - cut))
        assert rest.prompt == [*whole.prompt, *begun]
        assert (rest.ids, rest.texts) == (whole.ids[cut:], whole.texts[cut:])
        assert rest.end == whole.end == {"finish_reason": "length", "stop_reason": None}
        assert rest.usage["total_tokens"] == whole.usage["total_tokens"]
        cuts += 1
    assert TOKENS // 2 < cuts < TOKENS - 1  # there were characters to cut


@pytest.mark.parametrize("api", APIS)
def test_a_character_is_shown_with_its_last_token(api):
    whole = Streamed(request(api))
    assert re.search("[é海😀]", whole.text)
    assert [not text for text in whole.texts] == [
        text_of(flat(whole.ids[: end + 1])).endswith("\ufffd") for end in range(TOKENS)
    ]
    # Without the last token of one, what it has is never shown.
    cut = whole.texts.index("") + 1
    assert Streamed(request(api, tokens=cut)).text == "".join(whole.texts[:cut])


@pytest.mark.parametrize("api", APIS)
def test_the_first_text_behind_half_a_character_is_the_whole_prompt(api):
    whole = Streamed(request(api))
    cut = whole.texts.index("") + 1
    prompt = [*whole.prompt, *flat(whole.ids[:cut])]
    rest = Streamed(request(api, prompt, TOKENS - cut))
    assert rest.ids == whole.ids[cut:]
    assert next(filter(None, rest.texts)).startswith(text_of(prompt).rstrip("\ufffd"))
    assert rest.text == text_of([*prompt, *flat(rest.ids)]).rstrip("\ufffd ")


def test_a_chat_without_a_length_ends_where_the_first_one_did():
    whole = Streamed(request("chat", tokens=None))
    rest = Streamed(request("chat", [*whole.prompt, *flat(whole.ids[:9])], None, PLAIN))
    assert len(flat(rest.ids)) == len(flat(whole.ids)) - 9 == 55


@pytest.mark.parametrize("api", ["completions", "generate"])
def test_a_stop_string_ends_the_text_before_it(api):
    whole = Streamed(request(api, model=PLAIN))
    stop = whole.text[42:47]  # in three tokens
    at = whole.text.index(stop)
    stopped = Streamed(request(api, model=PLAIN, stop=["no word", stop]))
    assert stopped.text == whole.text[:at]
    assert stopped.end == {"finish_reason": "stop", "stop_reason": stop}
    assert stopped.ids == whole.ids[: (at + len(stop) + 3) // 4]
    assert stopped.usage["completion_tokens"] == len(stopped.ids)
    # The last letters of all that is known wait, as they may begin the longest one.
    shown = ["".join(stopped.texts[:end]) for end in range(1, len(stopped.texts))]
    assert shown == [whole.text[: max(0, 4 * end - 6)] for end in range(1, len(stopped.texts))]


def test_a_seed_begins_again_with_each_request():
    sampling = {"temperature": 1, "seed": 7}
    whole = Streamed(request("completions", **sampling))
    assert Streamed(request("completions", **sampling)).text == whole.text
    assert Streamed(request("completions")).text != whole.text
    cut = next(end for end in range(9, TOKENS) if whole.texts[end - 1])
    rest = Streamed(request("completions", [*whole.prompt, *flat(whole.ids[:cut])], TOKENS - cut, **sampling))
    assert rest.ids != whole.ids[cut:]
    cold = {"temperature": 0, "seed": 7}
    assert Streamed(request("completions", **cold)).text == Streamed(request("completions")).text


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_without_the_flag_ids_are_null(api):
    body = {"prompt": "Hello", "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    plain = testing.sim_stream(parse(api, body, **WIDE), "1", 0)
    asked = testing.sim_stream(parse(api, {**body, "return_token_ids": True}, **WIDE), "1", 0)
    assert plain != asked
    assert plain == re.sub(r'_ids":\[[^]]*\]', '_ids":null', asked)


def test_an_older_engine_starts_the_response_of_a_chat_anew():
    whole = Streamed(request("chat", model=OLDER))
    again = Streamed(request("chat", [*whole.prompt, *flat(whole.ids[:9])], model=OLDER))
    assert (again.prompt, again.text) == (whole.prompt, whole.text)
