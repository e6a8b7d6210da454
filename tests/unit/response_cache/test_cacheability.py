"""cpp/response_cache/cacheability.h: what may be cached; no two requests share a key."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core
from vllm_router import _core_testing as testing

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
JSON = ("Content-Type", "application/json")
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0}
ALL_ROUTES = {"routes": _core.cacheable_routes()}


def request(body=BODY, *, path=CHAT, fields=(), method="POST", query="", content=JSON, **rules):
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return testing.CacheRequest(method, path, query, [content, *fields], text, rules)


def judge(body=BODY, **how):
    return request(body, **how).judge()


def test_a_greedy_request_is_cached():
    assert judge() == "none"
    assert judge({"model": "m", "prompt": "hi", "temperature": 0.0}, path=COMPLETIONS) == "none"
    assert judge(content=("content-type", "Application/JSON; charset=utf-8")) == "none"


@for_each_row(
    ("how", "reason"),
    [
        ({"method": "GET"}, "route"),
        ({"path": "/v1/responses"}, "route"),
        ({"path": MESSAGES}, "route"),
        ({"path": "/v1/chat/completions/"}, "route"),
        ({"content": ("content-type", "text/plain")}, "content"),
        ({"content": ("x", "y")}, "content"),
        ({"fields": [("content-type", "application/json")]}, "content"),
        ({"fields": [("Content-Encoding", "gzip")]}, "content"),
        ({"fields": [("Range", "bytes=0-1")]}, "content"),
        ({"fields": [("Upgrade", "h2c")]}, "content"),
        ({"fields": [("Cache-Control", "max-age=0, No-Store")]}, "header"),
        ({"fields": [("X-Override-Temperature", "1")]}, "header"),
        ({"fields": [("x-vllm-router-override", "{}")]}, "header"),
        ({"fields": [("anthropic-beta", "files-api")]}, "header"),
        ({"fields": [("OpenAI-Beta", "x")]}, "header"),
        ({"fields": [("Authorization", "Bearer a"), ("authorization", "Bearer b")]}, "tenant"),
        ({"tenant": "header", "tenant_header": "x-team"}, "tenant"),
        ({"tenant": "header", "tenant_header": "x-team", "fields": [("x-team", " ")]}, "tenant"),
        (
            {"tenant": "header", "tenant_header": "x-team", "fields": [("x-team", "a"), ("X-Team", "b")]},
            "tenant",
        ),
        ({"max_request_bytes": 10}, "body_size"),
    ],
)
def test_heads_that_are_not_cached(how, reason):
    assert judge(**how) == reason


NOT_JSON = ["", "[]", "null", '{"a":1', '{"a":1}}', '{"a":1} x', '{"a" 1}', '{"a":1,}', "\ufeff\ufeff{}"]


@pytest.mark.parametrize("body", NOT_JSON)
def test_what_is_not_one_object_is_not_cached(body):
    assert judge(body) == "not_json"


def test_a_byte_order_mark_changes_nothing():
    """Row 18: a worker reads both alike, and responds alike."""
    text = json.dumps(BODY)
    assert judge("\ufeff" + text) == "none"
    assert request("\ufeff" + text).key() == request(text).key()


def test_an_object_of_very_many_members_is_not_cached():
    assert judge({"temperature": 0, **{f"m{i}": i for i in range(255)}}) == "none"
    assert judge({"temperature": 0, **{f"m{i}": i for i in range(256)}}) == "not_json"


@pytest.mark.parametrize(
    "body",
    [
        '{"temperature":0,"temperature":1}',
        '{"temperature":0,"t\\u006fp_p":1}',
        '{"temperature":0,"a":1,"a":1}',
    ],
)
def test_what_parsers_read_differently_is_not_cached(body):
    assert judge(body) == "odd_names"


@pytest.mark.parametrize("number", ["0", "0.0", "-0", "-0.0", "0e5", "0.000E-7", "0e999"])
def test_zero_has_many_spellings(number):
    assert judge(f'{{"temperature":{number}}}') == "none"


@for_each_row(
    "number",
    ["1", "0.1", "1e-7", "1e-999", '"0"', "false", "[0]", "00", ".0", "0.", "+0", "NaN", "0x0", "-", "1e999"],
)
def test_what_is_not_zero_is_not_cached(number):
    assert judge(f'{{"temperature":{number}}}') == "temperature"


@pytest.mark.parametrize("body", ['{"a":1}', '{"temperature":null}', "{}"])
def test_an_absent_temperature_is_not_zero_unless_the_operator_says_so(body):
    assert judge(body) == "temperature_absent"
    assert judge(body, absent_temperature=True) == "none"
    assert judge('{"temperature":1}', absent_temperature=True) == "temperature"


@pytest.mark.parametrize("path", ["/generate", "/inference/v1/generate"])
def test_some_routes_have_their_temperature_inside(path):
    def of(params):
        return judge({"text": "hi", "sampling_params": params, "temperature": 0}, path=path, **ALL_ROUTES)

    assert of({"temperature": 0}) == "none"
    assert of({"temperature": 0.5}) == "temperature"
    assert of([{"temperature": 0}]) == "temperature"
    assert of({"temperature": 0, "extra_args": {"a": 1}}) == "state"
    assert of({}) == of(None) == "temperature_absent"
    odd = '{"sampling_params":{"temperature":0,"temperature":1}}'
    assert judge(odd, path=path, **ALL_ROUTES) == "odd_names"


@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/v1/rerank", "/score", "/v1/score"])
def test_some_routes_have_no_temperature(path):
    assert judge({"model": "m", "input": ["a", "b"]}, path=path, **ALL_ROUTES) == "none"


@pytest.mark.parametrize(
    "more",
    [
        {"kv_transfer_params": {"a": 1}},
        {"ec_transfer_params": {}},
        {"bootstrap_room": 0},
        {"previous_response_id": "r"},
        {"conversation": "c"},
        {"background": True},
        {"store": True},
        {"logits_processors": []},
        {"vllm_xargs": {"a": 1}},
    ],
)
def test_requests_with_state_are_not_cached(more):
    assert judge(BODY | more) == "state"
    assert judge(BODY | dict.fromkeys(more)) == "none"


def content(*parts):
    return BODY | {"messages": [{"role": "user", "content": list(parts)}]}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}},
        {"type": "image_url", "image_url": "https://a.example/x.png"},
        {"image_url": {"url": "http://a"}},
        {"type": "input_image", "image_url": "http://a"},
        {"type": "video_url", "video_url": {"url": "file:///x"}},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "input_file", "file_id": "f"},
        {"type": "image", "source": {"type": "url", "url": "https://a"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}, "uuid": "u"},
        {
            "type": "tool_result",
            "content": [{"type": "image", "source": {"type": "url", "url": "https://a"}}],
        },
    ],
)
def test_media_by_reference_is_not_cached(part):
    assert judge(content(part)) == "remote_media"
    text = {"type": "text", "text": "what is it?"}
    assert judge(content(text, part)) == "remote_media"
    escaped = json.dumps(content(part)).replace("url", "\\u0075rl").replace("file", "\\u0066ile")
    assert judge(escaped.replace("uuid", "\\u0075uid").replace("source", "\\u0073ource")) == "remote_media"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": 'see "url": "https://a" and "file"'},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "image", "source": {"type": "base64", "data": "AA"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    ],
)
def test_media_inside_the_body_is_cached(part):
    assert judge(content(part)) == "none"


def test_deep_content_ends_the_search():
    text = '{"temperature":0,"messages":' + "[" * 5_000 + '{"image_url":"http://a"}' + "]" * 5_000 + "}"
    assert judge(text) == "remote_media"


def test_the_seeds_key_covers_five_members_only():
    assert judge(seed004=True) == "none"
    assert judge(BODY | {"top_p": 0.5, "max_tokens": 3, "stream": True}, seed004=True) == "none"
    for more in (
        {"stop": "x"},
        {"tools": []},
        {"seed": 1},
        {"max_tokens": 1.5},
        {"max_tokens": -1},
        {"top_p": "1"},
        {"stream": 1},
        {"stream": "true"},
    ):
        assert judge(BODY | more, seed004=True) == "uncovered_member"
    assert judge({"messages": [], "temperature": 0}, seed004=True) == "uncovered_member"
    assert judge('{"model":"\\x","messages":[],"temperature":0}', seed004=True) == "uncovered_member"
    known = '{"model":"llama-3","messages":[{"role":"user","content":"Hello!"}],"temperature":0}'
    key = "37f32db27668fa2ca008ff026b9dc0b7a6195ffe105cfa87d1f57734fbcbbf2d"
    assert request(known, seed004=True).key().hex() == key
    assert request(known.replace("llama", "ll\\u0061ma"), seed004=True).key().hex() == key


# ---- keys

KNOWN = '{"model":"llama-3","messages":[{"role":"user","content":"Hello!"}],"temperature":0}'
KNOWN_KEY = "695d29ff0799099ebe246446f1e3b957663ac1b1d6db46a6defdf1a361a46db4"


def test_order_and_blanks_between_members_do_not_matter():
    assert request(KNOWN).key().hex() == KNOWN_KEY
    spaced = '\n{ "temperature" : 0 ,\t"messages":[{"role":"user","content":"Hello!"}],"model":"llama-3"}  '
    assert request(spaced).key().hex() == KNOWN_KEY
    assert request(spaced.replace('role":"user', 'role": "user')).key().hex() != KNOWN_KEY


def test_all_else_is_in_the_key():
    keys = [
        request(KNOWN).key(),
        request(KNOWN).key(1),
        request(KNOWN, query="a=b").key(),
        request(KNOWN, path=COMPLETIONS).key(),
        request(KNOWN, fields=[("Authorization", "Bearer a")]).key(),
        request(KNOWN, fields=[("X-Api-Key", "b")]).key(),
        request(KNOWN[:-1] + ',"user":"u"}').key(),
        request(KNOWN.replace("0}", "0.0}")).key(),
    ]
    assert len(set(keys)) == len(keys)


def test_members_that_change_nothing_may_be_ignored():
    more = KNOWN[:-1] + ',"user":"u","rid":"1"}'
    assert request(more, ignored_members=["user", "rid"]).key().hex() == KNOWN_KEY
    assert request(more, ignored_members=["user"]).key().hex() != KNOWN_KEY
    assert not {"temperature", "cache_salt", "stream", "seed"} & set(_core.ignorable_members())


def test_tenants_never_meet():
    def key(*fields, tenant="credential"):
        return request(KNOWN, fields=fields, tenant=tenant, tenant_header="x-team").key()

    a, b = ("Authorization", "Bearer a"), ("Authorization", "Bearer b")
    red, blue = ("X-Team", "red"), ("x-team", "blue")
    assert key(a) == key(("authorization", " Bearer a ")) != key(b)
    assert key() not in (key(a), key(b))
    assert key(a, red, tenant="header") == key(b, red, tenant="header") != key(a, blue, tenant="header")
    both = [key(c, t, tenant="header+credential") for c in (a, b) for t in (red, blue)]
    assert len(set(both)) == 4
    assert key(a, tenant="shared") == key(b, tenant="shared")
    # Row 28: a key is read from api-key as well, and so tells tenants apart.
    others = [("Api-Key", "a"), ("api-key", "b"), ("x-api-key", "a")]
    keys = [key(*fields) for one in others for fields in ([one], [a, one], [b, one])]
    assert len({key(), key(a), key(b), *keys}) == 12


members = st.dictionaries(
    st.text(st.characters(exclude_characters='\\"', exclude_categories=["Cs", "Cc"]), max_size=6),
    st.recursive(
        st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=5,
)


@given(members, st.data())
def test_a_changed_byte_is_another_key_or_no_key(more, data):
    text = json.dumps(more | {"temperature": 0}, ensure_ascii=False).encode()
    original = request(text)
    if original.judge() != "none":
        return
    at = data.draw(st.integers(0, len(text) - 1))
    changed = bytearray(text)
    changed[at] = data.draw(st.integers(0, 255))
    other = request(bytes(changed))
    if other.judge() != "none" or other.key() != original.key():
        return
    # The same key, so the same request: Python reads it equally, in whatever order.
    assert json.loads(bytes(changed)) == json.loads(text)


@given(members, st.randoms(use_true_random=False))
def test_any_order_is_one_key(more, random):
    items = [*(more | {"temperature": 0}).items()]
    first = request(json.dumps(dict(items)))
    random.shuffle(items)
    separators = (" ,\t", " :\n")
    inner = ", ".join(f"{json.dumps(name)}{separators[1]}{json.dumps(value)}" for name, value in items)
    second = request("{" + inner.replace("\x00", "") + "}")
    assert first.judge() == second.judge()
    if first.judge() == "none":
        assert first.key() == second.key()


def test_what_a_client_may_ask_for():
    assert request(BODY | {"stream": True}).is_stream
    assert not request(BODY | {"stream": 1}).is_stream
    assert request(fields=[("Cache-Control", "no-cache")]).is_fresh
    assert request(fields=[("Pragma", "no-cache")]).is_fresh
    assert not request(fields=[("Cache-Control", "max-age=3")]).is_fresh


# ---- responses


def choice(reason="stop", index=0):
    return {"index": index, "message": {"content": "hi"}, "finish_reason": reason}


def judge_response(body, *, path=CHAT, status=200, fields=(("content-type", "application/json"),), **how):
    text = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return testing.judge_response(path, False, status, list(fields), text, **how)


WHOLE = {"id": "x", "choices": [choice()], "usage": {}}


def test_a_whole_response_is_stored():
    assert judge_response(WHOLE) == "none"
    assert (
        judge_response(WHOLE | {"error": None, "choices": [choice("length"), choice("tool_calls", 1)]})
        == "none"
    )
    assert judge_response({"data": [1]}, path="/v1/embeddings") == "none"
    assert judge_response({"type": "message", "stop_reason": "end_turn"}, path=MESSAGES) == "none"
    generated = {"text": "x", "meta_info": {"finish_reason": {"type": "length", "length": 3}}}
    assert judge_response(generated, path="/generate") == "none"


@for_each_row(
    "body",
    [
        "",
        "hi",
        '{"choices":[',
        {},
        {"choices": []},
        {"choices": [1]},
        {"choices": [choice(None)]},
        {"choices": [choice("abort")]},
        {"choices": [choice("stop"), choice("error", 1)]},
        WHOLE | {"error": {"message": "x"}},
        WHOLE | {"choices": [{"index": 0}]},
        {"type": "error", "choices": [choice()]},
    ],
)
def test_errors_are_not_stored(body):
    assert judge_response(body) == "error_inside"


def test_errors_of_other_routes_are_not_stored():
    assert judge_response({"type": "message", "stop_reason": None}, path=MESSAGES) == "error_inside"
    aborted = {"text": "x", "meta_info": {"finish_reason": {"type": "abort"}}}
    assert judge_response(aborted, path="/generate") == "error_inside"
    assert judge_response("[" + json.dumps(aborted) + "]", path="/generate") == "error_inside"


@for_each_row(
    ("how", "reason"),
    [
        ({"status": 201}, "status"),
        ({"status": 429}, "status"),
        ({"has_end": False}, "incomplete"),
        ({"announced": 2_000_000}, "size"),
        ({"fields": []}, "type"),
        ({"fields": [("content-type", "text/event-stream")]}, "type"),
        ({"fields": [JSON, ("content-encoding", "gzip")]}, "type"),
        ({"fields": [JSON, ("Set-Cookie", "a=b")]}, "type"),
        ({"fields": [JSON, ("Vary", "accept, *")]}, "type"),
        ({"fields": [JSON, ("Cache-Control", "private")]}, "type"),
        ({"fields": [JSON, ("Cache-Control", 'max-age=1, private="x"')]}, "type"),
        ({"fields": [JSON, ("Cache-Control", "no-store")]}, "type"),
    ],
)
def test_heads_that_are_not_stored(how, reason):
    assert judge_response(WHOLE, **how) == reason
    assert judge_response(WHOLE, announced=1 << 20) == "none"


def event(*choices, **more):
    return "data: " + json.dumps({"choices": list(choices), **more}) + "\n\n"


DONE = "data: [DONE]\n\n"
STREAM = event(choice(None)) + event(choice("stop")) + event(usage={"a": 1}) + DONE


def judge_stream(text, path=CHAT):
    return testing.judge_response(path, True, 200, [("content-type", "text/event-stream")], text)


def test_a_whole_stream_is_stored():
    assert judge_stream(STREAM) == "none"
    assert judge_stream(": a comment\n\n" + STREAM.replace("\n", "\r\n")) == "none"
    two = event(choice("stop", 0)) + event(choice(None, 1)) + event(choice("length", 1)) + DONE
    assert judge_stream(two) == "none"


def test_no_part_of_a_stream_is_stored():
    for end in range(len(STREAM)):
        assert judge_stream(STREAM[:end]) != "none", end


def message_stream(*reasons, behind=""):
    said = [{"type": "message_start", "message": {"stop_reason": None}}, {"type": "content_block_delta"}]
    said += [{"type": "message_delta", "delta": {"stop_reason": reason}} for reason in reasons]
    events = [*said, {"type": "message_stop"}]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events) + behind


@for_each_row(
    ("reason", "verdict"),
    [
        *((reason, "none") for reason in ("end_turn", "max_tokens", "tool_use", "stop_sequence", "refusal")),
        *((reason, "error_inside") for reason in (None, "abort", "error", "pause_turn", "", 5)),
    ],
)
def test_a_message_is_kept_only_with_a_reason_that_says_complete(reason, verdict):
    """Row 21: streamed and plain by one rule; streams that were aborted were kept."""
    assert judge_stream(message_stream(reason), MESSAGES) == verdict
    assert judge_stream(message_stream("end_turn", reason), MESSAGES) == verdict  # the last one counts
    assert judge_stream(message_stream(reason, behind=DONE), MESSAGES) == verdict
    assert judge_response({"type": "message", "stop_reason": reason}, path=MESSAGES) == verdict


def test_done_behind_the_last_event_of_a_message_stream_is_a_second_end():
    """Row 21: as older engines write it; such streams were never kept."""
    assert judge_stream(message_stream("end_turn", behind=DONE), MESSAGES) == "none"
    assert judge_stream(message_stream("end_turn", behind=DONE + DONE), MESSAGES) == "error_inside"
    assert judge_stream(message_stream("end_turn", behind="data: {}\n\n"), MESSAGES) == "error_inside"
    assert judge_stream(message_stream(), MESSAGES) == "error_inside"  # it says nowhere why it ended
    assert judge_stream(STREAM + DONE, CHAT) == "error_inside"


@for_each_row(
    ("text", "reason"),
    [
        (DONE, "error_inside"),
        (event(choice(None)) + DONE, "error_inside"),
        (event(choice("abort")) + DONE, "error_inside"),
        (event(choice("stop", 0)) + event(choice(None, 1)) + DONE, "error_inside"),
        (event(choice("stop"), error={"message": "x"}) + DONE, "error_inside"),
        ('data: {"error": {"code": 500}}\n\n' + DONE, "error_inside"),
        (STREAM + event(choice("stop")), "error_inside"),
        ("data: nonsense\n\n" + DONE, "error_inside"),
        (event(choice("stop")), "incomplete"),
        ("data: {}\ndata: {}\n\n" + DONE, "incomplete"),
        ('event: error\ndata: {"message": "x"}\n\n' + STREAM, "error_inside"),
    ],
)
def test_streams_that_are_not_stored(text, reason):
    assert judge_stream(text) == reason


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rerank", {"query": "q", "documents": [{"image": "http://a/b.png"}]}),
        ("/v1/score", {"data_1": {"content": [{"type": "image_url", "image_url": {"url": "http://a"}}]}}),
        ("/v1/embeddings", {"input": [{"text": "a", "image": "http://a/b.png"}]}),
        ("/generate", {"text": "a", "video": "http://a/b", "sampling_params": {"temperature": 0}}),
    ],
)
def test_media_by_reference_is_found_in_any_member(path, body):
    assert judge(body, path=path, **ALL_ROUTES) == "remote_media"


def test_a_session_of_the_worker_is_state():
    body = {"text": "a", "sampling_params": {"temperature": 0}}
    assert judge(body, path="/generate", **ALL_ROUTES) == "none"
    assert judge(body | {"session_params": {"id": "s"}}, path="/generate", **ALL_ROUTES) == "state"
    assert "session_params" not in _core.ignorable_members()


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ({"type": "stop"}, "none"),
        ({"type": "abort"}, "error_inside"),
        (None, "error_inside"),
    ],
)
def test_a_stream_of_sglangs_own_route_has_to_end_well(last, verdict):
    events = [
        {"text": "a", "meta_info": {"finish_reason": None}},
        {"text": "ab", "meta_info": {"finish_reason": last}},
    ]
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
    fields = [("content-type", "text/event-stream")]
    assert testing.judge_response("/generate", True, 200, fields, body) == verdict


def test_tenants_of_a_gateway_never_meet():
    """All have its credential, and it names them."""

    def key(tenant="credential", **client):
        return request(
            KNOWN, fields=[("Authorization", "Bearer a")], tenant=tenant, tenant_header="x-team", **client
        ).key()

    kinds = [{"of_peer": "red"}, {"of_peer": "blue"}, {"of_peer": "Red"}, {"of_key": "red"}]
    assert len({key(**kind) for kind in kinds}) == 4
    assert key(of_key="red") == key(of_key="blue") == key()  # the credential tells them apart
    assert len({key("shared", **kind) for kind in kinds}) == 1


def test_a_header_that_anyone_may_set_does_not_make_two_tenants_one():
    def key(**client):
        fields = [("x-team", "red")]
        return request(KNOWN, fields=fields, tenant="header", tenant_header="x-team", **client).key()

    assert len({key(), key(of_key="red"), key(of_key="blue")}) == 3
    assert key(of_peer="red") == key(of_key="red")


def test_of_two_tenants_nobody_knows_which():
    assert request(KNOWN, ambiguous="red").judge() == "tenant"
    assert request(KNOWN, ambiguous="red", tenant="shared").judge() == "none"
