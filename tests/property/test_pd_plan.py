"""Plans and copies for prefill and decode against their slow twin, of requests as clients may write them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.models import pd_connectors
from tests.models import pd_plan as twin
from tests.models.body_map import pairs
from vllm_router import _core_testing as testing

ROUTES = [
    "completions",
    "chat",
    "batch_chat",
    "responses",
    "messages",
    "inference_generate",
    "generate",
    "extra",
]
PARAMETERS = {"remote_host": "10.9.9.9", "remote_block_ids": [[1]]}
COUNTS = st.sampled_from([None, 0, 1, 2, 7, -3, 1.0, 1.5, 100000.0, "7", True, [], {}])
PROMPTS = st.sampled_from(
    [
        "hi",
        "",
        ["hi"],
        ["a", "b"],
        [],
        [1, 2],
        [[1, 2]],
        [[1], [2]],
        None,
        7,
        {},
        [True],
        [{"content": "a"}],
        [None],
    ]
)
STEERING = [*twin.TRANSFER, "bootstrap_x", *twin.IDS, *twin.RANKS, "a"]
PLACES_INSIDE = [*twin.OF_REQUEST, *twin.OF_SAMPLING]


def around(inner):
    """One level more, as an object or a list of objects."""
    return st.dictionaries(st.sampled_from(PLACES_INSIDE), inner | st.lists(inner | st.just(7), max_size=2))


FLAT = st.dictionaries(st.sampled_from(STEERING), st.just(1), max_size=3)
DEEPEST = around(around(around(FLAT)))  # of a member of the body; what is further inside is kept
INNER = FLAT | st.builds(dict.__or__, FLAT, around(FLAT)) | DEEPEST | around(DEEPEST)
STOPS = st.sampled_from([None, [], "x", ["x"], ["x", 7], [7], [7, 1.5], 7, True, {}])
SAMPLING = st.fixed_dictionaries(
    {},
    optional={
        "n": COUNTS,
        "max_tokens": COUNTS,
        "min_tokens": COUNTS,
        "stop": STOPS,
        "stop_token_ids": STOPS,
        "extra_args": INNER | st.lists(INNER, max_size=2) | st.just(7),
        "a": COUNTS,
    },
)
URLS = st.sampled_from(["data:image/png;base64,AA", "http://h/x", None, 7])
PLACES = URLS | st.fixed_dictionaries({}, optional={"url": URLS, "data": URLS, "type": st.just("base64")})
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "image_url", "image", "input_image", "input_audio", "file", 7]),
        "text": st.just("hi"),
        "image_url": PLACES,
        "source": PLACES,
        "uuid": st.just("u"),
    },
)
RESULTS = st.builds(lambda parts: {"type": "tool_result", "content": parts}, st.lists(PARTS, max_size=2))
CONTENT = st.just("hi") | st.lists(PARTS | RESULTS | st.just("a"), max_size=3)
MEMBERS = {
    "model": st.just("m"),
    "prompt": PROMPTS,
    "token_ids": PROMPTS,
    "text": PROMPTS,
    "input_embeds": st.sampled_from([None, [[1.5, 2]], [[[1.5]], [[2]]], []]),
    "stop": STOPS,
    "stop_token_ids": STOPS,
    "stop_sequences": STOPS,
    "ignore_eos": st.sampled_from([None, True, False, 1, "true"]),
    **dict.fromkeys((*twin.IDS, *twin.RANKS), st.just(3)),
    "messages": st.sampled_from([[{"role": "user", "content": "hi"}], [], [[{}]], None, "hi", [7]])
    | st.lists(CONTENT.map(lambda content: {"role": "user", "content": content}), min_size=1, max_size=2),
    "input": PROMPTS | CONTENT.map(lambda content: [{"role": "user", "content": content}]),
    "system": CONTENT,
    "chat_template": st.sampled_from([None, "{{ x }}"]),
    "chat_template_kwargs": st.sampled_from([None, {}, {"chat_template": None}, {"chat_template": "x"}, 7]),
    "prompt_logprobs": st.sampled_from([None, 0, 1]),
    "n": COUNTS,
    "best_of": COUNTS,
    "use_beam_search": st.sampled_from([None, True, False, 1]),
    "max_tokens": COUNTS,
    "min_tokens": COUNTS,
    "max_completion_tokens": COUNTS,
    "max_output_tokens": COUNTS,
    "truncate_prompt_tokens": COUNTS,
    "truncation": st.sampled_from([None, "disabled", "auto", 7]),
    "stream": st.sampled_from([None, True, False, 1, "true"]),
    "stream_options": st.sampled_from([{"include_usage": True}, None, 7]),
    "store": st.booleans(),
    "background": st.sampled_from([None, True, False, 1]),
    "previous_response_id": st.sampled_from([None, "resp_1"]),
    "prompt_embeds": st.sampled_from([None, "AAAA"]),
    "tools": st.sampled_from(
        [None, [], [{"type": "function"}], [{"type": "mcp"}], [{"type": "function"}, {}], 7]
    ),
    "sampling_params": SAMPLING | st.lists(SAMPLING, max_size=2) | st.sampled_from([None, 7, "a"]),
    "vllm_xargs": INNER | st.just([1]),
    "extra_args": INNER | st.just([1]),
    "extra_body": INNER | st.lists(INNER, max_size=2) | st.just(7),
    "parameters": INNER | st.lists(INNER, max_size=2) | st.just(7),
    "kv_transfer_params": st.sampled_from([PARAMETERS, None, "x"]),
    "ec_transfer_params": st.just({}),
    "bootstrap_room": st.just(7),
}
MEMBER = st.sampled_from(sorted(MEMBERS)).flatmap(lambda name: st.tuples(st.just(name), MEMBERS[name]))
# A usual request with a few more members, some of them twice.
BODIES = st.lists(MEMBER, max_size=5)


def written(members):
    return "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"


def meaning(text):
    """Members by name with all their values, since the order of what moves to the front says nothing."""
    return sorted((name, json.dumps(value, sort_keys=True)) for name, value in pairs(text))


def check_prefill_copy(route, members, connector, body, listed):
    rooms = list(range(1 if listed is None else listed))
    told = pd_connectors.attempt(rooms=rooms, listed_prompts=listed)
    copy = testing.prefill_copy(route, body.encode(), connector, told).decode()
    added = pd_connectors.told_to_prefill(connector, told)
    added |= pd_connectors.named_in_body(route, connector, told)
    assert json.loads(copy) == twin.prefill_copy(route, members, connector) | added
    names = [name for name, _ in pairs(copy)]
    edited = {*added}
    if connector != "sglang":
        edited |= {"stream", "stream_options"} & set(names)
        edited |= {"max_output_tokens", "store"} if route == "responses" else set()
        if route not in ("responses", "inference_generate"):
            edited.add("max_tokens")
        if connector in twin.ENDS_BY_LENGTH and route != "inference_generate":
            edited.add("ignore_eos")
    assert all(names.count(name) == 1 for name in edited)


@given(st.sampled_from(ROUTES), BODIES, st.sampled_from(pd_connectors.CONNECTORS))
def test_kind_reason_and_copies_are_the_twins(route, members, connector):
    body = written(members)
    plan = testing.pd_plan(route, body.encode(), connector)
    listed = None
    if connector == "sglang":
        kind, listed = twin.rooms(route, members)
        assert (plan["kind"], plan["listed_prompts"], plan["reason"]) == (kind, listed, "none")
    else:
        kind, reason = twin.kind(route, members, connector)
        assert (plan["kind"], plan["listed_prompts"], plan["reason"]) == (kind, None, reason)
    assert (plan["error"] == "") == (kind != "rejected")
    if kind == "rejected":
        return
    kept, count = twin.without_transfer(members)
    assert meaning(plan["plain"].decode()) == meaning(written(kept))
    stripped = plan["stripped"]
    assert not stripped.pop("unreadable")
    assert sum(stripped.values()) == count
    if count == 0:
        assert plan["plain"].decode() == body
    if plan["kind"] == "two_stages":
        check_prefill_copy(route, members, connector, body, listed)


RESPONSES = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.sampled_from([None, [], 7, [{}], [7], [{"finish_reason": "length"}] * 2])
        | st.sampled_from(["length", "stop", "abort", None]).map(lambda reason: [{"finish_reason": reason}]),
        "stop_reason": st.sampled_from(["max_tokens", "end_turn", "refusal", None]),
        "status": st.sampled_from(["incomplete", "completed", "failed", 7]),
        "kv_transfer_params": st.none()
        | st.just("x")
        | st.fixed_dictionaries(
            {},
            optional={
                "remote_engine_id": st.sampled_from(["e", "e", "e", "", None, 7]),
                "remote_request_id": st.sampled_from(["r", "r", "r", None]),
                "remote_host": st.sampled_from(["10.0.0.1", "10.0.0.1", "h", None, ""]),
                "remote_port": st.sampled_from([5600, 5600, 5600, "5600", None, 0, 1.5, 99999999]),
                "remote_block_ids": st.sampled_from([[[1, 2]], [[1, 2]], [1], [], [[]], None, 7, [["a1"]]]),
                "transfer_mode": st.sampled_from(["pull", "push"]),
            },
        ),
    },
)
WHOLE = {
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "remote_block_ids": [[1, 2]],
}


@given(RESPONSES, st.booleans(), st.sampled_from(pd_connectors.CONNECTORS), st.integers(0, 400))
def test_decode_gets_whole_parameters_or_none(response, whole, connector, cut):
    if whole:
        response["kv_transfer_params"] = WHOLE
    text = json.dumps(response)
    if cut < len(text):
        text = text[:cut]
    found, raw, pushes = testing.read_prefill_response(text.encode(), connector)
    expected, parameters = twin.hand_over(text, connector)
    assert found == expected
    assert (raw is None) == (parameters is None)
    body = b'{"prompt":"hi","kv_transfer_params":{"remote_host":"evil"}}'
    told = pd_connectors.attempt()
    copy, is_raw = testing.decode_copy("completions", body, connector, text.encode(), told)
    expected = pd_connectors.told_to_decode(connector, told, parameters)
    assert json.loads(copy) == {"prompt": "hi"} | expected
    if parameters is None:
        assert not pushes
        return
    assert json.loads(raw) == parameters
    assert raw in text.encode(), "not written anew"
    assert pushes == (
        connector == "nixl_push" or (connector == "nixl" and parameters.get("transfer_mode") == "push")
    )
    assert is_raw == (connector == "p2p_nccl" or (connector == "nixl" and not pushes))
    if is_raw:
        assert copy == b'{"kv_transfer_params":' + raw + b',"prompt":"hi"}'
