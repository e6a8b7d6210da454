"""cpp/proxy/admission/eviction.h: what an evicted request counts against its pool and its tenant comes back.

tests/proxy/test_evictions.py has the ways on the wire.
"""

import json

from tests.fakes.wire import eventually, request, response

PATH = "/v1/completions"
LONG = json.dumps({"model": "m", "stream": True, "prompt": "x" * 3_000_000}).encode()


def page_of(harness, router):
    return json.loads(harness.client(router).ask("GET", "/admin/admission").body)


def test_it_is_in_its_pool_once(harness):
    def wait(connection, message):
        if message.method == "POST":
            gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(wait)
    gate = worker.gate()
    router = harness.router(
        worker,
        load_poll_interval_secs=0,
        admission_config="class batch evict=true\ntenant tokens_per_minute=60000000 concurrency=9 anonymous",
        trusted_addresses=["127.0.0.1"],
    )
    clients = []

    def ask(of_class, body):
        clients.append(harness.client(router))
        clients[-1].send(request("POST", PATH, ("x-smg-priority", of_class), body=body))

    ask("batch", LONG)
    eventually(lambda: len(worker.posts) == 1)
    before = page_of(harness, router)
    assert before["classes"][2]["evict"]
    assert before["pools"][0]["idle_only_prefills"] == 1
    ask("interactive", b"{}")
    eventually(lambda: page_of(harness, router)["pools"][0]["classes"][2]["waiting"] == 1)
    pool = page_of(harness, router)["pools"][0]
    assert (pool["choosing"], pool["idle_only_prefills"]) == (0, 0)
    assert router.loads() == [1]
    (tenant,) = page_of(harness, router)["tenants"]
    assert tenant["open"] == 2
    gate.open()
    for client in clients:
        assert client.read_response().status == 200
    eventually(lambda: page_of(harness, router)["pools"][0]["idle_only_prefills"] == 0)
    assert len(worker.posts) == 3
