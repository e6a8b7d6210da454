"""cpp/proxy/disaggregation/pd_exchange.h: two requests to one end (tests/proxy/test_pd.py)."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.models import wait_until_known
from tests.fakes.wire import eventually, request, response

BODY = b'{"prompt":"hi"}'


def pair(harness, prefill, decode, **options):
    routing = {"prefill_urls": [prefill.url], "decode_urls": [decode.url]}
    return harness.router(routing=routing, **options)


def test_decode_gets_its_request_once_prefill_has_responded(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"{}"))

    prefill, decode = harness.worker(answer), harness.worker()
    gate = prefill.gate()
    router = pair(harness, prefill, decode)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    gate.wait_for_someone()
    assert router.loads() == [1, 1]  # decode's is reserved
    assert decode.requests == []
    gate.open()
    assert client.read_response().body == b"hello"
    assert json.loads(decode.requests[0].body) == {"prompt": "hi"}


def test_connections_to_both_are_used_again(harness):
    prefill = harness.worker(lambda connection, _: connection.send(response(200, b"{}")))
    decode = harness.worker()
    client = harness.client(pair(harness, prefill, decode))
    for _ in range(3):
        assert client.ask("POST", "/v1/completions", body=BODY).status == 200
    assert (len(prefill.connections), len(decode.connections)) == (1, 1)


def test_under_a_limit_of_requests_they_wait_for_both(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"{}"))

    prefill, decode = harness.worker(answer), harness.worker()
    gate = prefill.gate()
    router = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url], "max_worker_requests": 1},
        queue_size=10,
    )
    clients = [harness.client(router) for _ in range(3)]
    for client in clients:
        client.send(request("POST", "/v1/completions", body=BODY))
    gate.wait_for_someone()
    assert router.loads() == [1, 1]
    gate.open()
    assert [client.read_response().status for client in clients] == [200] * 3


def test_a_request_that_waits_for_decode_ends_when_prefill_has_left(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, b"{}")))
    decode = harness.worker(answer)
    gate = decode.gate()
    router = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url], "max_worker_requests": 1},
        queue_size=10,
    )
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", "/v1/completions", body=BODY))
    gate.wait_for_someone()
    second.send(request("POST", "/v1/completions", body=BODY))
    eventually(lambda: metric(router, "queue_requeues_total") == 1, "it does not wait")
    router.core.remove_worker(prefill.url)
    gate.open()
    assert first.read_response().status == 200
    assert second.read_response().status == 503
    assert metric(router, "queue_requeues_total") < 20


def metric(router, name):
    lines = router.server.metrics_text().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm_router_{name}"))


def test_requests_of_models_wait_for_workers_of_theirs(harness):
    gates = {}

    def serving(model):
        def answer(connection, message):
            if message.method == "GET":
                connection.send(response(200, json.dumps({"data": [{"id": model}]}).encode()))
                return
            if model in gates:
                gates[model].wait()
            connection.send(response(200, b"{}"))

        return answer

    prefills = [harness.worker(serving(model)) for model in "ab"]
    decodes = [harness.worker(serving(model)) for model in "ab"]
    gates["a"] = decodes[0].gate()
    router = harness.router(
        routing={
            "prefill_urls": [worker.url for worker in prefills],
            "decode_urls": [worker.url for worker in decodes],
            "max_worker_requests": 1,
        },
        queue_size=10,
        model_refresh_secs=3600,
    )
    wait_until_known(router, 2)

    def send(model):
        client = harness.client(router)
        body = json.dumps({"model": model, "prompt": ["x", "y"]}).encode()
        client.send(request("POST", "/v1/completions", body=body))
        return client

    running = send("a")
    gates["a"].wait_for_someone()
    waiting = send("a")
    eventually(lambda: metric(router, "queue_requeues_total") == 1, "it does not wait")
    assert [send("b").read_response().status for _ in range(3)] == [200] * 3
    assert metric(router, "queue_requeues_total") < 20
    gates["a"].open()
    assert [client.read_response().status for client in (running, waiting)] == [200] * 2
    assert [len([one for one in worker.requests if one.method == "POST"]) for worker in decodes] == [2, 3]


def test_a_model_without_a_worker_of_a_stage_is_not_waited_for(harness):
    def serving(model):
        def answer(connection, message):
            body = json.dumps({"data": [{"id": model}]}) if message.method == "GET" else "{}"
            connection.send(response(200, body.encode()))

        return answer

    prefill = harness.worker(serving("b"))
    decodes = [harness.worker(serving(model)) for model in "ab"]
    router = harness.router(
        routing={
            "prefill_urls": [prefill.url],
            "decode_urls": [worker.url for worker in decodes],
            "max_worker_requests": 1,
        },
        queue_size=10,
        model_refresh_secs=3600,
    )
    wait_until_known(router, 2)
    client = harness.client(router)
    message = client.ask("POST", "/v1/completions", body=b'{"model":"a","prompt":"x"}')
    assert (message.status, error_of(message)["code"]) == (503, "no_workers")
    assert metric(router, "queue_requeues_total") == 0


def test_a_model_has_a_part_of_each_stage(harness):
    def serving(model):
        def answer(connection, message):
            body = json.dumps({"data": [{"id": model}]}) if message.method == "GET" else "{}"
            connection.send(response(200, body.encode()))

        return answer

    stages = [{model: harness.worker(serving(model)) for model in "ab"} for _ in range(2)]
    router = harness.router(
        routing={
            "prefill_urls": [worker.url for worker in stages[0].values()],
            "decode_urls": [worker.url for worker in stages[1].values()],
        },
        model_refresh_secs=3600,
    )
    wait_until_known(router, 2)
    client = harness.client(router)

    def ask(model):
        return client.ask("POST", "/v1/completions", body=b'{"model":"%s","prompt":"x"}' % model.encode())

    for model, count in (("a", 3), ("b", 5)):
        for _ in range(count):
            assert ask(model).status == 200
    for stage in stages:
        posts = {m: [one for one in worker.requests if one.method == "POST"] for m, worker in stage.items()}
        assert {m: len(some) for m, some in posts.items()} == {"a": 3, "b": 5}
        for m, some in posts.items():
            assert {json.loads(one.body)["model"] for one in some} == {m}
    # The views follow the fleet: a model without a decode worker has none, and the other one is served.
    router.core.drain_worker(stages[1]["a"].url)
    assert ask("b").status == 200
    assert ask("a").status == 503
    router.core.remove_worker(stages[0]["a"].url)
    router.core.remove_worker(stages[1]["a"].url)
    assert ask("b").status == 200
    assert ask("a").status == 503


def test_behind_sglang_both_get_their_requests_at_once(harness):
    def answer(body):
        def send(connection, _message):
            gate.wait()
            connection.send(response(200, body))

        return send

    prefill, decode = harness.worker(answer(b"{}")), harness.worker(answer(b"hello"))
    gate = prefill.gate()
    router = pair(harness, prefill, decode, kv_connector="sglang")
    client = harness.client(router)
    client.send(request("POST", "/generate", body=b'{"text":["a","b"]}'))
    for _ in range(2):
        gate.wait_for_someone()
    copies = [json.loads(worker.requests[0].body) for worker in (prefill, decode)]
    assert copies[0] == copies[1]
    assert copies[0]["bootstrap_host"] == ["127.0.0.1"] * 2
    assert len(set(copies[0]["bootstrap_room"])) == 2
    gate.open()
    assert client.read_response().body == b"hello"


@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("ranks", [(0, 0), (4, 2)])
def test_sglang_is_told_ranks_by_name_if_that_is_on(harness, ranks, tells):
    prefill, decode = harness.worker(), harness.worker()
    routing = {
        "prefill_urls": [prefill.url],
        "decode_urls": [decode.url],
        "prefill_data_parallel_size": ranks[0],
        "decode_data_parallel_size": ranks[1],
    }
    options = {"kv_connector": "sglang"} | ({"pd_sglang_rank_fields": True} if tells else {})
    client = harness.client(harness.router(routing=routing, **options))
    own = {"routed_dp_rank": 9, "disagg_prefill_dp_rank": 9, "data_parallel_rank": 9}
    body = json.dumps({"text": ["a", "b"], **own}).encode()
    for count in range(1, 5):
        assert client.ask("POST", "/generate", body=body).status == 200
        eventually(lambda count=count: len(prefill.requests) == count)
    for to_prefill, to_decode in zip(prefill.requests, decode.requests, strict=True):
        heads = [message.get("x-data-parallel-rank") for message in (to_prefill, to_decode)]
        named: list[dict[str, int]] = [{}, {}]
        if ranks[0] and tells:
            of_prefill, of_decode = (int(rank) for rank in heads)
            named = [
                {"routed_dp_rank": of_prefill},
                {"routed_dp_rank": of_decode, "disagg_prefill_dp_rank": of_prefill},
            ]
        for message, expected in zip((to_prefill, to_decode), named, strict=True):
            copy = json.loads(message.body)
            assert {name: value for name, value in copy.items() if name.endswith("_rank")} == expected
    if ranks[0]:
        assert {message.get("x-data-parallel-rank") for message in prefill.requests} == set("0123")


def test_behind_sglang_a_failure_of_one_closes_the_other(harness):
    failing = harness.worker(lambda connection, _: connection.send(response(400, b"its text")))
    waiting = harness.worker(lambda connection, _: connection.ending())
    client = harness.client(pair(harness, failing, waiting, kv_connector="sglang"))
    message = client.ask("POST", "/generate", body=b'{"text":"a"}')
    assert (message.status, message.body) == (400, b"its text")
    if waiting.connections:
        assert waiting.connections[0].wait_ended() in ("eof", "reset")


def test_a_stopping_router_cuts_what_is_kept(harness):
    decode = harness.worker(lambda connection, _: connection.ending())
    prefill = harness.worker(lambda connection, _: connection.send(response(200, b"{}")))
    router = pair(harness, prefill, decode, shutdown_grace_period_secs=0.1)
    router.may_cut = True
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=BODY))
    decode.wait_for_requests(1)
    router.shutdown()
    message = client.read_response()
    assert (message.status, error_of(message)["code"]) == (503, "shutting_down")
    router.must_end()
    eventually(lambda: router.loads() == [0, 0], "load that nobody returned")
