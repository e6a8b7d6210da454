"""Shared replies, on one thread and on two; tests/proxy/test_shared_replies.py has what goes wrong."""

import json

from tests.fakes.wire import response

MODELS = b'{"object": "list", "data": [{"id": "a"}]}'


def test_the_reply_is_made_once_and_then_the_same_for_all(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, MODELS)))
    router = harness.router(worker, threads=2)
    clients = [harness.client(router) for _ in range(8)]
    replies = {client.ask("GET", "/v1/models").body for client in clients}
    assert [model["id"] for model in json.loads(replies.pop())["data"]] == ["a"]
    assert not replies
