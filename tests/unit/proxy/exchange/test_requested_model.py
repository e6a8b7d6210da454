"""cpp/proxy/exchange/requested_model.h: one resolution of a name, and the fleet that it follows."""

import json

from tests.fakes.harness import error_of
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.wire import eventually

CHAT = "/v1/chat/completions"


def ask(client, name):
    return client.ask("POST", CHAT, body=json.dumps({"model": name}).encode())


def test_a_model_goes_from_served_to_asleep_to_unknown(harness):
    a, b = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(a, b, model_refresh_secs=3600)
    wait_until_known(router, 2)
    client = harness.client(router)
    assert ask(client, "b").status == 200
    router.core.remove_worker(b.url)
    assert error_of(ask(client, "b"))["code"] == "no_workers_for_model"
    assert error_of(ask(client, "c"))["code"] == "model_not_found"
    router.core.add_worker(b.url)
    eventually(lambda: ask(client, "b").status == 200)


def test_a_request_stays_with_its_model_when_the_fleet_changes_while_it_is_retried(harness):
    """The name is looked up in the newest fleet."""
    leaving, other = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(
        leaving, other, model_refresh_secs=3600, disable_retries=False, retry_initial_backoff_ms=1
    )
    wait_until_known(router, 2)

    def answer(connection, message):
        if message.method == "POST":
            router.core.remove_worker(leaving.url)
            connection.reset()
        else:
            leaving.answer(connection, message)

    leaving.worker.answer = answer
    assert ask(harness.client(router), "a").status in (502, 503)
    assert other.served == other.wrong == []
