"""cpp/simulation/conversation_store.h: what a simulated worker keeps of conversations."""

import json

import pytest

from vllm_router import _core_testing as testing

PATH = "/v1/conversations"
A, B = ({"role": "user", "content": text} for text in "AB")


def serve(store, method, below="", body=None, identity="1"):
    text = "" if body is None else json.dumps(body)
    status, answer = store.serve(method, f"{PATH}{below}", text, identity)
    return (status, json.loads(answer)) if status == 200 else (status, answer)


@pytest.fixture
def store():
    store = testing.ConversationStore()
    serve(store, "POST", body={"items": [A], "metadata": {"topic": "x"}})
    return store


def items(store, name="conv_1"):
    return serve(store, "GET", f"/{name}/items")[1]["data"]


def test_a_conversation_is_made_read_changed_and_deleted(store):
    made = serve(store, "POST", body={}, identity="2")
    assert made == (200, {"id": "conv_2", "object": "conversation", "created_at": 7, "metadata": {}})
    first = {"id": "conv_1", "object": "conversation", "created_at": 7, "metadata": {"topic": "x"}}
    assert serve(store, "GET", "/conv_1") == (200, first)
    first["metadata"] = {"topic": "y"}
    assert serve(store, "POST", "/conv_1", {"metadata": {"topic": "y"}}) == (200, first)
    deleted = {"id": "conv_1", "object": "conversation.deleted", "deleted": True}
    assert serve(store, "DELETE", "/conv_1") == (200, deleted)
    assert serve(store, "GET", "/conv_1") == (404, 'Conversation with id "conv_1" not found.')
    assert serve(store, "GET", "/conv_2")[0] == 200


def test_items_have_ids_and_an_order(store):
    (first,) = items(store)
    assert first == {"id": "msg_conv_1_1"} | A
    status, added = serve(store, "POST", "/conv_1/items", {"items": [{"id": "own"} | B, B]})
    assert (status, [item["id"] for item in added["data"]]) == (200, ["own", "msg_conv_1_2"])
    assert (added["first_id"], added["last_id"], added["has_more"]) == ("own", "msg_conv_1_2", False)
    assert [item["id"] for item in items(store)] == ["msg_conv_1_1", "own", "msg_conv_1_2"]
    assert serve(store, "GET", "/conv_1/items/own") == (200, {"id": "own"} | B)
    assert serve(store, "DELETE", "/conv_1/items/own")[1]["id"] == "conv_1"
    assert serve(store, "GET", "/conv_1/items/own") == (404, 'Item with id "own" not found.')
    assert len(items(store)) == 2


@pytest.mark.parametrize(
    ("method", "below", "body", "status"),
    [
        ("GET", "", None, 405),
        ("PUT", "/conv_1", None, 405),
        ("DELETE", "/conv_1/items", None, 405),
        ("POST", "/conv_1/items/msg_conv_1_1", {}, 405),
        ("GET", "/conv_9", None, 404),
        ("GET", "/conv_9/items", None, 404),
        ("GET", "/conv_1/else", None, 404),
        ("GET", "/", None, 404),
        ("POST", "", {"items": "x"}, 400),
        ("POST", "/conv_1/items", {}, 400),
        ("POST", "/conv_1/items", {"items": [B, 1]}, 400),
    ],
)
def test_what_is_no_request_changes_nothing(store, method, below, body, status):
    assert serve(store, method, below, body)[0] == status
    assert items(store) == [{"id": "msg_conv_1_1"} | A]


@pytest.mark.parametrize("named", ["conv_1", {"id": "conv_1"}], ids=["text", "object"])
def test_a_turn_has_all_before_it_and_stays(store, named):
    answer = {"id": "msg_r", "role": "assistant"}
    whole = store.turn(
        json.dumps({"model": "m", "input": "B", "conversation": named, "stream": True}), json.dumps(answer)
    )
    kept = {"id": "msg_conv_1_1"} | A
    assert json.loads(whole) == {"input": [kept, B], "model": "m", "stream": True}
    assert items(store) == [kept, {"id": "msg_conv_1_2"} | B, answer]
    assert json.loads(store.turn(json.dumps({"conversation": named})))["input"] == items(store)


def test_a_turn_without_its_end_leaves_nothing(store):
    store.turn(json.dumps({"input": [B], "conversation": "conv_1"}))
    assert len(items(store)) == 1


def test_a_turn_needs_a_conversation_that_is_known(store):
    for body in ['{"input": "B"}', '{"conversation": null}', '{"input": "\\"conversation\\"', ""]:
        assert store.turn(body) is None
    for named in ["conv_9", {"id": "conv_9"}, {}, 1]:
        with pytest.raises(Exception, match=r"Conversation with id .* not found"):
            store.turn(json.dumps({"conversation": named}))
    with pytest.raises(Exception, match="`input` must be"):
        store.turn(json.dumps({"conversation": "conv_1", "input": 1}))
