"""cpp/proxy/exchange/eligible_workers.h: for whom a free place is. Of two stages: test_pd_exchange.py."""

import json

from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.wire import request

CHAT = "/v1/chat/completions"


def ask(client, model):
    client.send(request("POST", CHAT, body=json.dumps({"model": model, "messages": []}).encode()))


def test_a_free_place_at_a_worker_of_another_model_wakes_no_one(harness):
    served = ModelWorker(harness, "a")
    answer, gate = served.answer, served.worker.gate()

    def slow(connection, message):
        if message.method == "POST":
            gate.wait()
        answer(connection, message)

    served.worker.answer = slow
    other = ModelWorker(harness, "b")
    router = harness.router(served, other, routing={"max_worker_requests": 1}, model_refresh_secs=3600)
    wait_until_known(router, 2)
    first, second, third = (harness.client(router) for _ in range(3))
    ask(first, "a")
    gate.wait_for_someone()
    ask(second, "a")
    ask(third, "b")
    assert third.read_response().status == 200
    assert served.served == []  # the first is under way, and the second still waits
    gate.open()
    assert [client.read_response().status for client in (first, second)] == [200, 200]
    assert other.wrong == []
