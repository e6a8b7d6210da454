"""A real Envoy has its workers picked: what it sends, when its streams end, what its retries mean for loads.

docs/how-to/pick_endpoints_for_a_gateway.md says how it is configured.
"""

import json
import random
import re
import threading

import pytest

from tests.envoy.real_envoy import BUFFERED, DUPLEX, NONE, STREAMED
from tests.fakes.authority import Authority
from tests.fakes.harness import Streaming
from tests.fakes.wire import EndedEarlyError, chunk, chunked, eventually, free_port, request, response

pytestmark = pytest.mark.envoy

CHAT = "/v1/chat/completions"
JSON = ("Content-Type", "application/json")


def chat(text, **more):
    return json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()


def counted(router, name, **labels):
    shown = "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}" if labels else ""
    (found,) = re.findall(
        rf"^vllm_router_{name}{re.escape(shown)} (\d+)$", router.server.metrics_text(), re.MULTILINE
    )
    return int(found)


def named(worker):
    """A worker's answer that says which one it is."""
    return response(200, worker.authority.encode())


def workers_that_say_their_names(harness, count):
    workers = []
    for number in range(count):
        workers.append(harness.worker(lambda wire, _, number=number: wire.send(named(workers[number]))))
    return workers


# ---- what comes to the workers


@pytest.mark.parametrize("mode", [DUPLEX, BUFFERED, STREAMED, NONE])
@pytest.mark.parametrize("size", [0, 1, 5_000, 400_000], ids=str)
def test_a_body_comes_whole_to_the_worker_that_was_picked(harness, gateway, mode, size):
    workers = [harness.worker() for _ in range(3)]
    router = harness.router(*workers, policy="round_robin", epp_port=0)
    client = harness.client_at(gateway(router, request_body=mode).port)
    data = random.Random(size).randbytes(size)
    for _ in range(3):
        assert client.ask("POST", CHAT, body=data).status == 200
    assert [[message.body for message in worker.posts] for worker in workers] == [[data]] * 3
    assert counted(router, "epp_picks_total", result="picked") == 3
    router.must_rest()


@pytest.mark.parametrize("mode", [DUPLEX, NONE])
def test_a_request_without_a_body_is_picked_by_its_head(harness, gateway, mode):
    worker = harness.worker()
    router = harness.router(worker, policy="cache_aware", epp_port=0)
    client = harness.client_at(gateway(router, request_body=mode).port)
    assert client.ask("GET", "/x").status == 200
    router.must_rest()


def test_the_choice_comes_before_the_last_byte_where_the_policy_reads_no_body(harness, gateway):
    worker = harness.worker()
    router = harness.router(worker, policy="round_robin", epp_port=0)
    client = harness.client_at(gateway(router).port)
    client.send(request("POST", CHAT, JSON, ("Transfer-Encoding", "chunked")) + chunk(b"a" * 5_000))
    eventually(lambda: router.loads() == [1])
    client.send(chunked(b"b" * 5_000))
    assert client.read_response().status == 200
    assert worker.posts[0].body == b"a" * 5_000 + b"b" * 5_000


def test_a_gateway_and_the_proxy_choose_alike(harness, gateway):
    """Conversations that grow, in sequence, at two routers with one seed."""
    workers = workers_that_say_their_names(harness, 4)
    routing = {"seed": 7}
    proxy = harness.router(*workers, policy="cache_aware", routing=routing)
    picker = harness.router(*workers, policy="cache_aware", routing=routing, epp_port=0)
    direct, through = harness.client(proxy), harness.client_at(gateway(picker).port)
    dice = random.Random(1)
    texts = [f"conversation {number} " * 40 for number in range(12)]
    for _ in range(100):
        number = dice.randrange(len(texts))
        texts[number] += dice.choice(("and then", "why", "so it was")) * 20
        data = chat(texts[number], max_tokens=9)
        one, other = (client.ask("POST", CHAT, JSON, body=data) for client in (direct, through))
        assert other.body == one.body
        for router in (proxy, picker):
            router.wait_for_load(0)


def test_the_picker_is_reached_by_tls(harness, gateway, tmp_path):
    authority = Authority(tmp_path)
    files = authority.certify("127.0.0.1")
    worker = harness.worker()
    options = {"tls_cert_path": files.cert, "tls_key_path": files.key, "epp_tls": True}
    router = harness.router(worker, epp_port=0, **options)
    client = harness.client_at(gateway(router, ca=authority.path).port)
    assert client.ask("POST", CHAT, JSON, body=chat("hello")).status == 200


# ---- the load


@pytest.mark.parametrize("mode", [NONE, DUPLEX, STREAMED])
def test_the_load_lasts_to_the_last_byte_of_a_stream(harness, gateway, mode):
    streaming = Streaming(harness)
    router = harness.router(streaming, epp_port=0)
    client = harness.client_at(gateway(router, response_body=mode).port)
    client.send(request("POST", CHAT, JSON, body=chat("hello", stream=True)))
    client.read_until(b"data: 1\n\n")
    assert router.loads() == [1]
    streaming.gate.open()
    client.read_until(b"data: [DONE]\n\n")
    router.must_rest()


@pytest.mark.parametrize("mode", [NONE, DUPLEX])
def test_a_client_that_leaves_a_stream_returns_the_load(harness, gateway, mode):
    streaming = Streaming(harness)
    router = harness.router(streaming, epp_port=0)
    client = harness.client_at(gateway(router, response_body=mode).port)
    client.send(request("POST", CHAT, JSON, body=chat("hello", stream=True)))
    client.read_until(b"data: 1\n\n")
    assert router.loads() == [1]
    client.close()
    router.must_rest()  # before its worker has ended the response


def test_a_client_that_leaves_the_queue_takes_no_place(harness, gateway):
    streaming = Streaming(harness)
    router = harness.router(streaming, epp_port=0, max_concurrent_requests=1, queue_size=5)
    port = gateway(router).port
    first, left = harness.client_at(port), harness.client_at(port)
    first.send(request("POST", CHAT, JSON, body=chat("hello")))
    first.read_until(b"data: 1\n\n")
    left.send(request("POST", CHAT, JSON, body=chat("hello")))
    eventually(lambda: counted(router, "epp_streams") == 2)
    left.close()
    eventually(lambda: counted(router, "epp_picks_total", result="left") == 1)
    streaming.gate.open()
    first.read_until(b"data: [DONE]\n\n")
    assert harness.client_at(port).ask("GET", "/x").status == 200
    router.must_rest()


def test_many_requests_of_which_some_are_cancelled_leave_no_load(harness, gateway):
    """Each tenth leaves when its request is out, or amid its body."""
    workers = [harness.worker() for _ in range(3)]
    router = harness.router(*workers, policy="cache_aware", epp_port=0)
    port = gateway(router).port
    data = chat("hello " * 1_000)
    served = []

    def send(seed):
        dice = random.Random(seed)
        count = 0
        client = harness.client_at(port)
        for _ in range(250):
            if dice.random() < 0.1:
                whole = request("POST", CHAT, JSON, body=data)
                client.send(whole[: dice.choice((len(whole), len(whole) // 2))])
                client.close()
                client = harness.client_at(port)
                continue
            count += client.ask("POST", CHAT, JSON, body=data).status == 200
        client.close()
        served.append(count)

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(served) == 8
    router.must_rest()
    eventually(lambda: counted(router, "epp_streams") == 0)
    assert counted(router, "epp_picks_total", result="picked") >= sum(served)
    assert sum(served) > 1_600


def test_the_usage_of_bodies_that_are_sent_is_in_receipts(harness, gateway):
    usage = {"prompt_tokens": 30, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 16}}
    answer = json.dumps({"choices": [], "usage": usage}).encode()
    worker = harness.worker(lambda wire, _: wire.send(response(200, answer, JSON)))
    router = harness.router(worker, policy="cache_aware", epp_port=0)
    client = harness.client_at(gateway(router, response_body=DUPLEX).port)
    assert client.ask("POST", CHAT, JSON, body=chat("hello")).body == answer
    admin = harness.client(router)

    def tokens():
        receipts = json.loads(admin.ask("GET", "/admin/receipts").body)["receipts"]
        return [(each["prompt_tokens"], each["reported_cached_tokens"]) for each in receipts]

    eventually(tokens)
    assert tokens() == [(30, 16)]


# ---- subsets and rejections


@pytest.mark.parametrize("as_text", [False, True], ids=("list", "text"))
def test_a_subset_restricts_the_choice(harness, gateway, as_text):
    workers = workers_that_say_their_names(harness, 4)
    router = harness.router(*workers, policy="round_robin", epp_port=0)
    names = [workers[1].authority, workers[3].authority]
    client = harness.client_at(gateway(router, subset=",".join(names) if as_text else names).port)
    assert {client.ask("GET", "/x").body.decode() for _ in range(8)} == set(names)


def test_a_subset_without_a_worker_is_rejected(harness, gateway):
    router = harness.router(harness.worker(), epp_port=0)
    client = harness.client_at(gateway(router, subset=["10.0.0.1:80"]).port)
    rejected = client.ask("GET", "/x")
    assert (rejected.status, rejected.get("x-llm-d-request-dropped-reason")) == (503, "rejected-no-endpoints")
    assert "endpoints that the gateway lists" in json.loads(rejected.body)["error"]["message"]


def test_a_client_gets_the_pickers_503_and_429(harness, gateway):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, rate_limit_tokens_per_second=1)
    client = harness.client_at(gateway(router).port)
    router.core.set_healthy(worker.url, False)
    unserved = client.ask("POST", CHAT, JSON, body=chat("hello"))
    limited = client.ask("POST", CHAT, JSON, body=chat("hello"))
    for rejected, status, code in ((unserved, 503, "no_workers"), (limited, 429, "rate_limited")):
        assert (rejected.status, rejected.get("retry-after")) == (status, "1")
        assert json.loads(rejected.body)["error"]["code"] == code
    assert worker.posts == []


# ---- failures


def test_a_list_is_attempted_in_its_order_and_the_load_moves(harness, gateway):
    """The first responds with 503, so Envoy sends the request to the second."""
    workers = workers_that_say_their_names(harness, 3)
    first = harness.worker(lambda wire, _: wire.send(response(503, b"busy")))
    router = harness.router(first, *workers, policy="round_robin", epp_port=0, epp_fallbacks=2)
    client = harness.client_at(gateway(router, first, *workers, takes_lists=True).port)
    answers = [client.ask("POST", CHAT, JSON, body=chat("hello")) for _ in range(8)]
    assert {answer.status for answer in answers} == {200}
    assert first.posts
    assert counted(router, "epp_served_elsewhere_total") == len(first.posts)
    router.must_rest()


def test_a_worker_that_is_gone_costs_no_request_where_there_is_a_list(harness, gateway):
    workers = workers_that_say_their_names(harness, 3)
    router = harness.router(*workers, policy="round_robin", epp_port=0, epp_fallbacks=2)
    client = harness.client_at(gateway(router, *workers, takes_lists=True).port)
    workers[0].stop_listening()
    answers = {client.ask("POST", CHAT, JSON, body=chat("hello")).body.decode() for _ in range(9)}
    assert answers == {worker.authority for worker in workers[1:]}
    assert counted(router, "epp_served_elsewhere_total") >= 1
    router.must_rest()


def test_a_worker_that_dies_in_a_stream_leaves_no_load(harness, gateway):
    def die(connection, message):
        if message.method == "POST":
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.send(head + chunk(b"data: 1\n\n"))
            gate.wait()
            connection.reset()

    worker = harness.worker(die)
    gate = worker.gate()
    router = harness.router(worker, epp_port=0)
    client = harness.client_at(gateway(router).port)
    client.send(request("POST", CHAT, JSON, body=chat("hello", stream=True)))
    client.read_until(b"data: 1\n\n")
    assert router.loads() == [1]
    gate.open()
    with pytest.raises((EndedEarlyError, ConnectionResetError)):
        client.read_until(b"data: [DONE]\n\n")
    router.must_rest()


def test_breakers_learn_from_what_the_gateway_reports(harness, gateway):
    workers = workers_that_say_their_names(harness, 1)
    bad = harness.worker(lambda wire, _: wire.send(response(500, b"broken")))
    options = {"disable_circuit_breaker": False, "cb_failure_threshold": 2, "cb_timeout_duration_secs": 3600}
    router = harness.router(bad, *workers, policy="round_robin", epp_port=0, **options)
    client = harness.client_at(gateway(router).port)
    statuses = [client.ask("POST", CHAT, JSON, body=chat("hello")).status for _ in range(20)]
    assert 500 in statuses
    assert statuses[-6:] == [200] * 6


def test_a_picker_that_is_restarted_under_load_serves_again_and_has_no_load(harness, gateway):
    worker = harness.worker()
    port = free_port()
    former = harness.router(worker, epp_port=port, epp_host="127.0.0.1")
    envoy = gateway(former)
    over, statuses = threading.Event(), []

    def send():
        client = harness.client_at(envoy.port)
        while not over.is_set():
            statuses.append(client.ask("POST", CHAT, JSON, body=chat("hello")).status)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    eventually(lambda: statuses.count(200) >= 50)
    former.shutdown()
    former.must_end()
    eventually(lambda: statuses[-1] != 200)
    router = harness.router(worker, epp_port=port, epp_host="127.0.0.1")
    eventually(lambda: counted(router, "epp_picks_total", result="picked") >= 50)
    over.set()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 500, 503, 504}
    assert harness.client_at(envoy.port).ask("GET", "/x").status == 200
    for each in (former, router):
        each.must_rest()
