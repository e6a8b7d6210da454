"""The routing text of random bodies equals the twin's, whatever the order of members and the blanks."""

import json
import random

from hypothesis import example, given
from hypothesis import strategies as st

from tests.models.routing_text import routing_text
from vllm_router import _core_testing as testing

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(["", "f", "get_weather", "é"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
urls = st.sampled_from(["https://x/a.png", "data:image/png;base64,AAAA", "data:,x", "data:"])
sources = st.fixed_dictionaries({}, optional={"url": urls, "data": texts, "file_id": texts, "uuid": texts})
calls = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": names, "arguments": texts}, optional={"x": values})},
    optional={"id": texts, "type": st.just("function")},
)
parts = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["text", "input_text", "output_text"]),
            "text": texts | st.just("x-anthropic-billing-header: cch=1;"),
        }
    ),
    st.fixed_dictionaries(
        {"type": st.just("image_url"), "image_url": urls | sources}, optional={"uuid": texts}
    ),
    st.fixed_dictionaries({"type": st.just("image"), "source": sources}),
    st.fixed_dictionaries({"type": st.just("input_image")}, optional={"image_url": urls, "file_id": texts}),
    st.fixed_dictionaries(
        {"type": st.just("input_file")}, optional={"file_url": urls, "file_id": texts, "file_data": texts}
    ),
    st.fixed_dictionaries({"type": st.just("input_audio"), "input_audio": sources}),
    st.fixed_dictionaries(
        {"type": st.just("tool_use"), "name": names, "input": values.filter(lambda v: v is not None)}
    ),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": texts}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["odd", "refusal"])}, optional={"refusal": texts, "x": values}
    ),
)
results = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "content": texts | st.lists(parts, max_size=2)}
)
content = st.none() | texts | st.lists(parts | results, max_size=3)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"])},
    optional={
        "content": content,
        "name": names,
        "reasoning_content": st.none() | texts,
        "tool_calls": st.none() | st.lists(calls, max_size=2),
    },
)
items = st.one_of(
    messages,
    st.fixed_dictionaries({"type": st.just("function_call"), "name": names, "arguments": texts}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "output": texts}),
    st.fixed_dictionaries({"type": st.just("item_reference"), "id": texts}),
)
gemini_parts = st.one_of(
    st.fixed_dictionaries({"text": texts}),
    st.fixed_dictionaries(
        {
            "inlineData": st.fixed_dictionaries(
                {"mimeType": st.sampled_from(["image/png", "text/x"]), "data": texts}
            )
        }
    ),
    st.fixed_dictionaries({"fileData": st.fixed_dictionaries({"fileUri": texts})}),
    st.fixed_dictionaries({"functionCall": st.fixed_dictionaries({"name": names, "args": calls})}),
    st.fixed_dictionaries({"functionResponse": calls}),
)
contents = st.lists(
    st.fixed_dictionaries(
        {"parts": st.lists(gemini_parts, max_size=3)}, optional={"role": st.sampled_from(["user", "model"])}
    ),
    max_size=3,
)
compared = st.fixed_dictionaries({"content": st.lists(parts, max_size=3)})
ids = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5)
prompts = texts | st.lists(texts, min_size=1, max_size=3) | ids | st.lists(ids, min_size=1, max_size=2)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": names,
        "messages": st.none() | st.lists(messages, max_size=4),
        "input": prompts | st.lists(items, min_size=1, max_size=3),
        "prompt": st.none() | prompts,
        "text": texts,
        "input_ids": ids,
        "prompt_token_ids": ids,
        "query": texts | compared,
        "queries": texts
        | st.lists(texts, min_size=1, max_size=2)
        | st.lists(compared, min_size=1, max_size=2),
        "text_1": texts | st.lists(texts, min_size=1, max_size=2),
        "data_1": texts | compared,
        "prompt_embeds": texts | st.lists(texts, min_size=1, max_size=2),
        "contents": contents,
        "system": texts | st.lists(parts, max_size=2),
        "instructions": st.none() | texts,
        "tools": st.lists(st.dictionaries(texts, values, max_size=2), max_size=2),
        "cache_salt": st.none() | texts,
        "chat_template_kwargs": st.none() | st.dictionaries(texts, values, max_size=2),
        "documents": st.none() | st.lists(st.dictionaries(texts, texts, max_size=2), max_size=2),
        "temperature": values,
    },
).map(
    # Anthropic's member or Responses', and never both.
    lambda body: {name: body[name] for name in body if name != "instructions" or "system" not in body}
)
paths = st.sampled_from(["", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"])


def with_source(source):
    return {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}


@given(body=bodies, path=paths, indent=st.sampled_from([None, 0, 3]), seed=st.integers(0, 99))
@example({"messages": [{"role": "system", "reasoning_content": "\x1f"}]}, "", None, 0)
@example(
    {"messages": [{"role": "tool", "content": [{"type": "tool_result", "content": ["a\x1d", "b"]}]}]},
    "",
    None,
    0,
)
@example(with_source({"url": "https://x/a.png", "file_id": "0"}), "", None, 0)
@example(with_source({"file_id": "0", "url": "https://x/a.png"}), "", None, 0)
def test_the_text_equals_the_twins(body, path, indent, seed):
    members = list(body.items())
    random.Random(seed).shuffle(members)
    written = json.dumps(dict(members), ensure_ascii=False, indent=indent)
    for opening, tools in ((False, "after"), (False, "first"), (True, "after")):
        found = testing.routing_text(written, path, opening=opening, tools=tools)
        expected = routing_text(body, path, opening, tools_first=tools == "first")
        assert (None if found is None else found.get("token_ids", found.get("text"))) == expected


@given(
    first=st.lists(messages, min_size=1, max_size=4), more=st.lists(messages, max_size=3), tools=st.booleans()
)
def test_a_longer_conversation_extends_a_shorter_one_that_has_left_its_lead(first, more, tools):
    first = [*first, {"role": "user", "content": "x"}]
    rest = {"tools": [{"name": "f"}]} if tools else {}
    shorter = testing.routing_text(json.dumps({"messages": first} | rest))["text"]
    longer = testing.routing_text(json.dumps({"messages": first + more} | rest))["text"]
    assert longer.startswith(shorter)
    answered = [*first, {"role": "assistant", "content": "y"}]
    opening = testing.routing_text(json.dumps({"messages": answered} | rest), opening=True)
    assert opening == testing.routing_text(json.dumps({"messages": answered + more} | rest), opening=True)


@st.composite
def damaged(draw):
    """A body in which some characters are gone, doubled, or another bracket, comma, colon or quote."""
    written = draw(bodies.map(lambda body: json.dumps(body | {"user": "ann"}, ensure_ascii=False)))
    for _ in range(draw(st.integers(0, 4))):
        marks = [place for place, char in enumerate(written) if char in '{}[],:"']
        place = draw(st.sampled_from(marks)) if marks else 0
        piece = draw(
            st.sampled_from(["", "{", "}", "[", "]", ",", ":", '"', '"a":', "1,", '},"user":"eve"}'])
        )
        written = written[:place] + piece + written[place + draw(st.integers(0, 1)) :]
    return written.encode()


@given(body=damaged(), behind=st.sampled_from(' }],:"x'))
@example(b'{"documents":{"a":"b":1},"x":1},"user":"eve"}', " ")
@example(b'{"documents":["a":1],"x":1]}', "}")
@example(b'{"tools":[,{}],"x":1]}', " ")
def test_reading_the_prompt_changes_no_field_whatever_the_body(body, behind):
    fields = testing.request_fields(body)
    assert testing.request_fields(body, with_text=True) == fields
    assert testing.request_fields(body, padded=True, with_text=True, behind=behind) == fields
