"""cpp/proxy/conditions/condition_watch.h: what begins and ends, in the log, and what services say."""

import json

from tests.fakes.wire import eventually, free_port, response, wait_until_logged

JSON = ("Content-Type", "application/json")


def test_a_condition_of_responses_is_logged_when_it_begins_and_when_it_is_over(harness, conditions, capfd):
    code = 401
    worker = harness.worker(lambda connection, _: connection.send(response(code, b"{}", JSON)))
    client = harness.client(harness.router(worker, policy="round_robin"))

    def chat(times):
        for _ in range(times):
            client.ask("POST", "/v1/chat/completions", JSON, body=b'{"model": "m"}')

    chat(10)
    eventually(lambda: conditions(client) == [("worker_rejects", worker.url, None)], "it never began")
    wait_until_logged(capfd, f"{worker.url} rejects requests: 10 of 10 responses")
    code = 200
    chat(11)
    eventually(lambda: conditions(client) == [], "it never ended")
    wait_until_logged(capfd, f"no longer so: {worker.url} rejects requests")


def test_few_refusals_are_no_condition(harness, conditions):
    worker = harness.worker(lambda connection, _: connection.send(response(401, b"{}", JSON)))
    client = harness.client(harness.router(worker, policy="round_robin"))

    def recent():
        (row,) = json.loads(client.ask("GET", "/admin/status").body)["workers"]
        return row["recent"]["responses"]

    for _ in range(9):
        client.ask("POST", "/v1/chat/completions", JSON, body=b'{"model": "m"}')
    eventually(lambda: recent() == {"401": 9}, "they were not counted")
    assert conditions(client) == []


def test_services_say_what_is_wrong_with_them(harness, conditions):
    redis = f"redis://127.0.0.1:{free_port()}"
    client = harness.client(harness.router(harness.worker(), policy="round_robin", peer_sync=redis))
    eventually(lambda: ("peer_sync", None, None) in conditions(client), "nobody missed the other routers")
