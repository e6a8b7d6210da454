"""The prefix digest of random bodies equals the twin's, and hashlib's, for any Unicode."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from tests.models.prefix_digest import prefix_anchor, prefix_digest
from vllm_router import Router
from vllm_router import _core_testing as testing

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
parts = st.one_of(
    texts,
    st.fixed_dictionaries({"type": st.sampled_from(["text", "input_text", "output_text"]), "text": texts}),
    st.fixed_dictionaries({"text": texts}),
    st.fixed_dictionaries({"type": st.sampled_from(["image_url", "thinking", ""])}, optional={"text": texts}),
)
content = st.none() | texts | st.lists(parts, max_size=3) | st.just(5)
messages = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", ""]),
        "content": content,
        "name": texts,
    },
)
ids = st.lists(st.integers(0, 2**32 - 1), max_size=6)
prompts = texts | st.lists(texts, max_size=3) | ids | st.lists(ids, max_size=2) | st.just([1, "a"])
bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": texts,
        "messages": st.none() | st.lists(messages, max_size=4),
        "input": prompts | st.lists(messages, max_size=3),
        "prompt": st.none() | prompts,
        "text": texts,
        "query": texts | st.fixed_dictionaries({"content": content}),
        "text_1": texts | st.lists(texts, max_size=2),
        "data_1": st.lists(st.fixed_dictionaries({"content": content}), min_size=1, max_size=2),
        "prompt_embeds": texts | st.lists(texts, min_size=1, max_size=2),
        "contents": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "role": st.sampled_from(["user", "model"]),
                    "parts": st.lists(st.fixed_dictionaries({"text": texts}), max_size=2),
                },
            ),
            max_size=2,
        ),
        "systemInstruction": st.fixed_dictionaries(
            {"parts": st.lists(st.fixed_dictionaries({"text": texts}), max_size=2)}
        ),
        "input_ids": ids,
        "system": st.none() | texts | st.lists(parts, max_size=2),
        "instructions": st.none() | texts,
        "temperature": st.floats(0, 1),
    },
)
ROUTERS = {limit: Router("prefix_aware", max_prefix_length=limit) for limit in (1, 2, 3, 7, 16, 1024)}


@given(
    bodies, st.sampled_from(sorted(ROUTERS)), st.sampled_from([None, 0, 3]), st.booleans(), st.integers(0, 99)
)
def test_the_digest_equals_the_twins(body, limit, indent, ascii_only, seed):
    members = list(body.items())
    random.Random(seed).shuffle(members)
    written = json.dumps(dict(members), ensure_ascii=ascii_only, indent=indent)
    anchor = prefix_anchor(written, limit)
    assert testing.prefix_anchor(written, limit) == anchor
    assert testing.prefix_anchor(written, limit, padded=False) == anchor
    expected = None if anchor is None else prefix_digest(body.get("model", ""), anchor)
    assert testing.make_key(ROUTERS[limit], body=written)["prefix_digest"] == expected


@given(texts, texts, st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_the_digest_of_any_unicode_is_hashlibs(model, system, user):
    body = {"model": model, "messages": [{"role": "user", "content": user}], "system": system}
    found = testing.make_key(ROUTERS[16], body=json.dumps(body))["prefix_digest"]
    anchor = prefix_anchor(json.dumps(body), 16)
    assert found == (None if anchor is None else prefix_digest(model, anchor))
    prompt = testing.make_key(ROUTERS[16], prompt=user, model=model)["prefix_digest"]
    alone = prefix_anchor(json.dumps({"prompt": user}), 16)
    assert prompt == (None if alone is None else prefix_digest(model, alone))
