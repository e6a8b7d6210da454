"""Several models behind one address: each request goes to a worker that lists its model."""

import concurrent.futures
import json
import re
from urllib.parse import quote

import anthropic
import openai
import pytest

from tests.fakes.harness import error_of
from tests.fakes.models import ModelWorker, wait_until_all_listed, wait_until_known
from tests.fakes.wire import chunked, eventually, request, response
from vllm_router.discovery import WorkerSpec

KNOWN = {"model_refresh_secs": 3600}
CHAT = "/v1/chat/completions"


def post(client, model, path=CHAT, **more):
    return client.ask("POST", path, body=json.dumps({"messages": [], "model": model, **more}).encode())


def by(answer):
    assert answer.status == 200, answer.body
    return json.loads(answer.body)["by"]


def demand(router):
    pattern = r'^vllm_router_model_demand_total\{model="(.*)",result="(.*)"\} (\S+)$'
    found = re.findall(pattern, router.server.metrics_text(), re.MULTILINE)
    return {(model, result): int(float(value)) for model, result, value in found if float(value)}


def two(harness, **options):
    a, b = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(a, b, **{**KNOWN, **options})
    wait_until_known(router, 2)
    return a, b, router


# ---- pools


@pytest.mark.parametrize("policy", ["round_robin", "least_load", "consistent_hash", "cache_aware", "auto"])
def test_of_six_pools_and_forty_names_each_request_reaches_a_worker_that_lists_its_model(harness, policy):
    pools = [[f"p{pool}-{n}" for n in range(6 if pool < 4 else 8)] for pool in range(6)]
    workers = [
        ModelWorker(harness, *names, adapters={f"lora-{names[0]}": names[0]} if copy == 0 else None)
        for names in pools
        for copy in range(2)
    ]
    router = harness.router(*workers, policy=policy, **KNOWN)
    wait_until_all_listed(router, *workers)
    names = [name for pool in pools for name in pool] + [f"lora-{pool[0]}" for pool in pools]
    clients = [harness.client(router) for _ in range(4)]

    def run(client):
        for name in names:
            assert by(post(client, name, user=f"u-{name}")) in {w.url for w in workers if name in w.cards}

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(run, client) for client in clients]:
            future.result()
    assert [worker.wrong for worker in workers] == [[]] * 12
    assert sum(len(worker.served) for worker in workers) == 4 * 46


def test_round_robin_takes_turns_within_each_pool(harness):
    """Requests for another model in between do not change whose turn it is."""
    workers = [ModelWorker(harness, name) for name in "aabb"]
    router = harness.router(*workers, **KNOWN)
    wait_until_all_listed(router, *workers)
    client = harness.client(router)
    for _ in range(8):
        post(client, "a")
        post(client, "b")
    assert [len(worker.served) for worker in workers] == [4, 4, 4, 4]


def test_a_hash_ring_is_the_pools(harness):
    """A third of the sessions for each of three workers, whatever other workers there are."""
    workers = [ModelWorker(harness, "b") for _ in range(6)] + [ModelWorker(harness, "a") for _ in range(3)]
    router = harness.router(*workers, policy="consistent_hash", decision_headers=True, **KNOWN)
    wait_until_all_listed(router, *workers)
    client = harness.client(router)
    for n in range(60):
        answer = client.ask("POST", CHAT, ("X-Session-ID", f"s{n}"), body=b'{"model": "a"}')
        assert answer.get("x-vllm-router-reason") == "session_hash"
    assert all(len(worker.served) > 5 for worker in workers[6:])


def test_retries_stay_in_the_pool(harness):
    bad = harness.worker(lambda connection, _: connection.reset())
    good, other = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(good, other, **KNOWN, disable_retries=False, retry_initial_backoff_ms=1)
    wait_until_known(router, 2)
    router.core._reconcile("file", [WorkerSpec(bad.url, models=["a"])], True, [])
    eventually(lambda: len(router.core.workers) == 3)
    client = harness.client(router)
    for _ in range(10):
        assert by(post(client, "a")) == good.url
    assert other.served == []
    router.core.set_healthy(good.url, False)
    assert post(client, "a").status in (502, 503)
    assert other.served == other.wrong == []


def test_a_pool_whose_workers_are_all_down_gets_503_and_no_other_worker(harness):
    a, b, router = two(harness)
    client = harness.client(router)
    router.core.set_healthy(a.url, False)
    answer = post(client, "a")
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")
    assert b.served == b.wrong == []
    assert by(post(client, "b")) == b.url


def test_a_full_pool_does_not_hold_up_another(harness):
    """Requests for a wait while its one worker is full, those for b behind them do not."""
    gate = None

    def slow(connection, message):
        if message.method == "POST":
            gate.wait()
        a.answer(connection, message)

    a, b = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    gate = a.worker.gate()
    a.worker.answer = slow
    router = harness.router(a, b, routing={"max_worker_requests": 1}, **KNOWN)
    wait_until_known(router, 2)
    waiting = [harness.client(router) for _ in range(3)]
    for client in waiting:
        client.send(request("POST", CHAT, body=b'{"model": "a"}'))
    gate.wait_for_someone()
    client = harness.client(router)
    for _ in range(5):
        assert by(post(client, "b")) == b.url
    gate.open()
    for client in waiting:
        assert by(client.read_response()) == a.url


# ---- who serves what


def test_workers_that_list_nothing_at_all_are_as_before(harness):
    """One-model fleets, and workers without /v1/models: names are not even read."""
    workers = [ModelWorker(harness), ModelWorker(harness)]
    for worker in workers:
        worker.status = 404
        worker.cards = {"x": None}
    router = harness.router(*workers, **KNOWN)
    eventually(lambda: all(worker.lists for worker in workers))
    client = harness.client(router)
    assert post(client, "anything").status == 404
    assert client.ask("POST", CHAT, body=b"{}").status == 200
    assert demand(router) == {}


def test_a_worker_that_fails_to_list_gets_nothing_while_the_others_differ(harness):
    a, b, failing = ModelWorker(harness, "a"), ModelWorker(harness, "b"), ModelWorker(harness, "c")
    failing.status = 500
    router = harness.router(a, b, failing, model_refresh_secs=0.02, models=["big"])
    wait_until_known(router, 2)
    client = harness.client(router)
    eventually(lambda: error_of(post(client, "c"))["code"] == "model_not_found")
    failing.wrong.clear()
    for _ in range(6):
        assert by(post(client, "a")) == a.url
    assert error_of(post(client, "big"))["code"] == "no_workers_for_model"
    assert failing.wrong == []
    failing.status = 200
    eventually(lambda: post(client, "c").status == 200)


def test_what_a_worker_said_last_holds_while_it_says_nothing(harness):
    a, _b, router = two(harness, model_refresh_secs=0.02)
    lists = a.lists
    a.status = 500
    eventually(lambda: a.lists > lists + 3)
    client = harness.client(router)
    assert by(post(client, "a")) == a.url
    a.status = 200
    a.cards = {"c": None}
    eventually(lambda: post(client, "c").status == 200)
    assert post(client, "a").status == 503


def test_a_404_for_a_model_that_a_worker_lists_has_it_polled_soon(harness):
    a, b, router = two(harness)
    a.cards = {"new": None}
    client = harness.client(router)
    assert post(client, "a").status == 404
    eventually(lambda: post(client, "new").status == 200)
    assert a.lists == 2
    assert b.lists == 1


def test_a_worker_that_joins_gets_no_request_before_its_models_are_known(harness):
    a, router = ModelWorker(harness, "a"), None
    router = harness.router(a, **KNOWN, health_check_interval_secs=0.05)
    wait_until_known(router, 1)
    joining = ModelWorker(harness, "b")
    gate = joining.worker.gate()

    def held(connection, message):
        if message.target == "/v1/models":
            gate.wait()
        joining.answer(connection, message)

    joining.worker.answer = held
    router.core._reconcile("file", [WorkerSpec(joining.url)], True, [])
    gate.wait_for_someone()
    client = harness.client(router)
    for _ in range(10):
        assert by(post(client, "a")) == a.url
    gate.open()
    eventually(lambda: post(client, "b").status == 200)
    assert joining.wrong == []


def test_declared_models_win_over_what_the_worker_says(harness):
    a, b = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    router = harness.router(**KNOWN)
    specs = [WorkerSpec(a.url, models=["x"]), WorkerSpec(b.url, models=["y"])]
    router.core._reconcile("file", specs, True, [])
    wait_until_known(router, 2)
    a.cards = b.cards = dict.fromkeys("xy")
    client = harness.client(router)
    assert (by(post(client, "x")), by(post(client, "y"))) == (a.url, b.url)
    assert post(client, "a").status in (404, 503)


def test_a_list_of_workers_names_the_model_of_each(harness):
    """Row 45 of the third list: `model_id` was unknown though requests were routed by it."""
    a, b = ModelWorker(harness, "a"), ModelWorker(harness, "b")
    b.cards = {"sql": "b", "b": None}  # the adapter is first
    mute = harness.worker(lambda connection, _: connection.send(response(404, b"{}")))
    router = harness.router(a, b, mute, model_refresh_secs=30)
    wait_until_known(router, 3)
    client = harness.client(router)
    rows = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert {row["url"]: row["model_id"] for row in rows} == {a.url: "a", b.url: "b", mute.url: "unknown"}
    one = client.ask("GET", "/workers/" + quote(b.url, safe=""))
    assert json.loads(one.body)["model_id"] == "b"


# ---- names that no worker serves


def test_an_unknown_model_gets_openais_404(harness):
    _a, _b, router = two(harness)
    answer = post(harness.client(router), "gpt-5")
    assert answer.status == 404
    assert json.loads(answer.body) == {
        "error": {
            "message": "The model `gpt-5` does not exist. Served: a, b.",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert demand(router) == {("other", "unknown"): 1}


def test_real_clients_see_not_found(harness):
    _a, b, router = two(harness)
    b.raw = json.dumps({"data": [{"id": "b"}]}).encode()
    url = f"http://127.0.0.1:{router.port}"
    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="The model `x` does not exist"):
            client.chat.completions.create(model="x", messages=[{"role": "user", "content": "hi"}])
        assert [model.id for model in client.models.list()] == ["a", "b"]
    with (
        anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client,
        pytest.raises(anthropic.NotFoundError, match="does not exist"),
    ):
        client.messages.create(model="x", max_tokens=1, messages=[{"role": "user", "content": "hi"}])


def test_unknown_models_may_be_forwarded(harness):
    a, b, router = two(harness, unknown_model="forward")
    assert b"no such model here" in post(harness.client(router), "x").body
    assert a.wrong + b.wrong == ["x"]


def test_a_model_whose_workers_left_is_asleep(harness):
    a, b, router = two(harness)
    router.core.remove_worker(b.url)
    client = harness.client(router)
    answer = post(client, "b")
    assert (answer.status, answer.get("retry-after")) == (503, "10")
    assert (error_of(answer)["code"], error_of(answer)["param"]) == ("no_workers_for_model", "model")
    assert demand(router) == {("b", "asleep"): 1}
    assert by(post(client, "a")) == a.url
    listed = json.loads(client.ask("GET", "/v1/models").body)["data"]
    assert [card["id"] for card in listed] == ["a", "b"]


def test_expected_models_are_asleep_from_the_start_even_in_an_empty_fleet(harness):
    router = harness.router(models=["big"], **KNOWN)
    client = harness.client(router)
    answer = post(client, "big")
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers_for_model")
    assert error_of(post(client, "x"))["code"] == "no_workers"
    assert demand(router) == {("big", "asleep"): 1}


def test_a_request_that_names_none(harness):
    a, b, router = two(harness)
    client = harness.client(router)
    for body in (b"{}", b'{"model": null}', b'{"model": ""}'):
        answer = client.ask("POST", CHAT, body=body)
        assert (answer.status, error_of(answer)["code"]) == (400, "model_required")
        assert "Served: a, b." in error_of(answer)["message"]
    for path in ("/generate", "/tokenize", "/other"):
        assert client.ask("POST", path, body=b"{}").status == 200
    assert client.ask("GET", "/x").status == 200
    router = harness.router(a, b, **KNOWN, default_model="b")
    wait_until_known(router, 2)
    assert by(harness.client(router).ask("POST", CHAT, body=b"{}")) == b.url
    router = harness.router(a, b, **KNOWN, default_model="main", model_alias=["main=b"])
    wait_until_known(router, 2)
    assert by(harness.client(router).ask("POST", CHAT, body=b"{}")) == b.url


def test_a_body_that_is_no_object_is_the_workers_to_decide(harness):
    a, b, router = two(harness)
    client = harness.client(router)
    bodies = [b"[]", b"{", b"text", b'{"model": 1}']
    for worker in (a, b):
        worker.worker.answer = lambda connection, _: connection.send(response(400, b"{}"))
    for body in bodies:
        assert client.ask("POST", CHAT, body=body).status == 400
    sent = [m.body for worker in (a, b) for m in worker.worker.requests if m.method == "POST"]
    assert sorted(sent) == sorted(bodies)


# ---- waiting for a worker


def waiting(router):
    found = re.findall(
        r"^vllm_router_model_waiting_requests\{.*\} (\S+)$", router.server.metrics_text(), re.MULTILINE
    )
    return sum(int(float(n)) for n in found)


def join(router, *workers):
    router.core._reconcile("file", [WorkerSpec(worker.url) for worker in workers], True, [])


def test_a_request_for_a_sleeping_model_goes_to_the_first_worker_that_joins(harness):
    other = ModelWorker(harness, "a")
    router = harness.router(other, models=["big"], model_wait_secs=600, **KNOWN)
    wait_until_known(router, 1)
    clients = [harness.client(router) for _ in range(3)]
    for client in clients:
        client.send(request("POST", CHAT, body=b'{"model": "big"}'))
    eventually(lambda: waiting(router) == 3)
    assert by(post(harness.client(router), "a")) == other.url  # nobody waits behind them
    big = ModelWorker(harness, "big")
    join(router, big)
    for client in clients:
        assert by(client.read_response()) == big.url
    assert demand(router)["big", "asleep"] == 3
    assert ("big", "served") not in demand(router)
    assert waiting(router) == 0
    assert other.wrong == []


def test_a_model_whose_last_worker_drains_is_asleep(harness):
    a, b, router = two(harness, model_wait_secs=600)
    router.core.drain_worker(b.url)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=b'{"model": "b"}'))
    eventually(lambda: waiting(router) == 1)
    assert demand(router) == {("b", "asleep"): 1}
    another = ModelWorker(harness, "b")
    join(router, another)
    assert by(client.read_response()) == another.url
    assert by(post(harness.client(router), "a")) == a.url


def test_a_request_for_an_alias_waits_for_its_model_and_the_next_one_on_the_connection_for_its_response(
    harness,
):
    router = harness.router(models=["big"], model_alias=["fast=big"], model_wait_secs=600, **KNOWN)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=b'{"model": "fast"}'), request("GET", "/liveness"))
    eventually(lambda: waiting(router) == 1)
    big = ModelWorker(harness, "big")
    join(router, big)
    assert by(client.read_response()) == big.url
    assert client.read_response().body == b"OK"
    assert big.served == ["big"]


@pytest.mark.parametrize("options", [{"model_wait_secs": 0.2}, {"model_wait_secs": 600, "queue_size": 0}])
def test_when_the_wait_ends_it_is_the_503_that_it_would_have_been(harness, options):
    router = harness.router(ModelWorker(harness, "a"), models=["big"], **options, **KNOWN)
    wait_until_known(router, 1)
    answer = post(harness.client(router), "big")
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers_for_model")
    assert answer.get("retry-after") == "10"
    assert demand(router) == {("big", "asleep"): 1}
    assert waiting(router) == 0


def test_as_many_wait_as_may_queue(harness):
    router = harness.router(models=["big"], model_wait_secs=600, queue_size=2, **KNOWN)
    clients = [harness.client(router) for _ in range(3)]
    for client in clients[:2]:
        client.send(request("POST", CHAT, body=b'{"model": "big"}'))
    eventually(lambda: waiting(router) == 2)
    assert post(clients[2], "big").status == 503
    clients[0].close()  # and leaves its place to another
    eventually(lambda: waiting(router) == 1)
    clients[2].send(request("POST", CHAT, body=b'{"model": "big"}'))
    eventually(lambda: waiting(router) == 2)
    big = ModelWorker(harness, "big")
    join(router, big)
    for client in clients[1:]:
        assert by(client.read_response()) == big.url


def test_a_client_whose_body_is_not_read_to_its_end_may_leave_too(harness):
    router = harness.router(models=["big"], model_wait_secs=600, **KNOWN)
    client = harness.client(router)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: 20000000\r\n\r\n"
    client.send(head + b'{"model": "big", "prompt": "' + b"x" * 8_500_000)
    eventually(lambda: waiting(router) == 1)
    client.close()
    eventually(lambda: waiting(router) == 0)


def test_a_body_whose_memory_others_need_waits_for_no_worker(harness):
    router = harness.router(models=["big"], model_wait_secs=600, body_memory_mb=16, **KNOWN)
    body = b'{"prompt": "' + b"x" * 12_000_000 + b'", "model": "big"}'
    small, first, second = (harness.client(router) for _ in range(3))
    small.send(request("POST", CHAT, body=b'{"model": "big"}'))
    first.send(request("POST", CHAT, body=body))
    eventually(lambda: waiting(router) == 2)
    second.send(request("POST", CHAT, body=body))
    answer = first.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers_for_model")
    eventually(lambda: waiting(router) == 2)
    big = ModelWorker(harness, "big")
    join(router, big)
    assert by(small.read_response()) == by(second.read_response()) == big.url


def test_a_server_that_stops_does_not_wait(harness):
    router = harness.router(models=["big"], model_wait_secs=600, **KNOWN)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=b'{"model": "big"}'))
    eventually(lambda: waiting(router) == 1)
    router.shutdown()
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "shutting_down")
    router.must_end()


# ---- how a body names its model


def test_a_chunked_body_and_one_that_names_its_model_behind_megabytes(harness):
    _a, b, router = two(harness)
    client = harness.client(router)
    body = b'{"messages": ["' + b"x" * 9_000_000 + b'"], "model": "b"}'
    assert by(client.ask("POST", CHAT, body=body)) == b.url
    client.send(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunked(b'{"model"', b': "b"}'),
    )
    assert by(client.read_response()) == b.url


@pytest.mark.parametrize("path", ["/generate", "/v1/files"])
def test_a_long_body_without_a_model_passes_on_paths_that_need_none(harness, path):
    a, b, router = two(harness)
    body = b'{"data": "' + b"x" * 9_000_000 + b'"}'
    assert harness.client(router).ask("POST", path, body=body).status == 200
    assert a.served + b.served == [None]


def test_a_form_names_its_model(harness):
    a, b, router = two(harness)
    body = (
        b'--xy\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n\0\1\r\n'
        b'--xy\r\nContent-Disposition: form-data; name="model"\r\n\r\nNAME\r\n--xy--\r\n'
    )
    client = harness.client(router)
    path, field = "/v1/audio/transcriptions", ("Content-Type", "multipart/form-data; boundary=xy")
    assert by(client.ask("POST", path, field, body=body.replace(b"NAME", b"b"))) == b.url
    assert by(client.ask("POST", path, field, body=body.replace(b"NAME", b"a"))) == a.url
    assert client.ask("POST", path, field, body=body.replace(b"NAME", b"x")).status == 404


# ---- attackers


def test_names_in_errors_are_cut_and_escaped(harness):
    _a, _b, router = two(harness)
    client = harness.client(router)
    answer = post(client, "x" * 1_000_000)
    assert answer.status == 404
    assert len(answer.body) < 500
    message = error_of(post(client, "\x1b[2J\r\nSet-Cookie: a`\0é"))["message"]
    assert message == "The model `?[2J??Set-Cookie: a??é` does not exist. Served: a, b."
    raw = client.ask("POST", CHAT, body=b'{"model": "\xff\xfe"}')
    assert raw.status == 404
    raw.body.decode()


def test_unknown_names_never_become_labels_or_memory(harness):
    _a, _b, router = two(harness)
    client = harness.client(router)
    for n in range(300):
        assert post(client, f"x{n}").status == 404
    assert demand(router) == {("other", "unknown"): 300}


def test_a_404_lists_twenty_names_at_most(harness):
    a, b = ModelWorker(harness, *(f"m{n}" for n in range(30))), ModelWorker(harness, "b")
    router = harness.router(a, b, **KNOWN)
    wait_until_known(router, 31)
    message = error_of(post(harness.client(router), "x"))["message"]
    assert message.endswith(("m19 and 11 more.", "m18 and 11 more."))


def test_metrics_name_256_models_and_the_rest_together(harness):
    a, b = ModelWorker(harness, *(f"m{n}" for n in range(300))), ModelWorker(harness, "b")
    router = harness.router(a, b, **KNOWN)
    wait_until_known(router, 301)
    client = harness.client(router)
    for n in range(300):
        post(client, f"m{n}")
    labels = {model for model, _ in demand(router)}
    assert len(labels) in (256, 257)  # whether b, which nothing was sent to, is among the first or not
    assert "other" in labels


# ---- the list, aliases


def test_the_list_is_what_is_known_and_refresh_asks(harness):
    a, b, router = two(harness)
    client = harness.client(router)
    cards = json.loads(client.ask("GET", "/v1/models").body)["data"]
    assert [(card["id"], card["object"], card["root"], card["parent"]) for card in cards] == [
        ("a", "model", "a", None),
        ("b", "model", "b", None),
    ]
    assert (a.lists, b.lists) == (1, 1)
    a.cards["c"] = "a"
    assert len(json.loads(client.ask("GET", "/v1/models").body)["data"]) == 2
    cards = json.loads(client.ask("GET", "/v1/models?refresh=1").body)["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("a", None), ("c", "a"), ("b", None)]
    assert by(post(client, "c")) == a.url


def test_one_model_is_answered_from_what_is_known(harness):
    a, b, router = two(harness, model_alias=["fast=org/b"])
    a.cards["org/b"] = "a"
    client = harness.client(router)
    client.ask("GET", "/v1/models?refresh=1")
    lists = a.lists + b.lists
    for path, root, parent in (
        ("a", "a", None),
        ("org/b", "org/b", "a"),
        ("org%2Fb", "org/b", "a"),
        ("fast", "org/b", None),
    ):
        answer = client.ask("GET", f"/v1/models/{path}")
        card = json.loads(answer.body)
        assert (answer.status, card["object"], card["root"], card["parent"]) == (200, "model", root, parent)
    listed = json.loads(client.ask("GET", "/v1/models").body)["data"]
    assert json.loads(client.ask("GET", "/v1/models/a").body) == listed[0]
    answer = client.ask("GET", "/v1/models/x%01y")
    assert answer.status == 404
    assert error_of(answer) == {
        "message": 'The model "x\\x01y" does not exist; GET /v1/models lists those that do.',
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert client.ask("GET", "/v1/models/%zz").status == 400
    assert client.ask("HEAD", "/v1/models/a").status == 200
    answer = client.ask("DELETE", "/v1/models/a")
    assert (answer.status, answer.get("allow")) == (405, "GET, HEAD")
    router.core.remove_worker(b.url)
    assert client.ask("GET", "/v1/models/b").status == 200  # remembered
    assert a.lists + b.lists == lists


def test_one_model_where_workers_are_not_polled(harness):
    worker = ModelWorker(harness, "a", adapters={"sql": "a"})
    router = harness.router(worker)
    client = harness.client(router)
    assert json.loads(client.ask("GET", "/v1/models/sql").body)["parent"] == "a"
    assert client.ask("GET", "/v1/models/x").status == 404
    client = harness.client(harness.router())
    assert (client.ask("GET", "/v1/models/a").status) == 503


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_alias_is_replaced_in_the_body_and_nothing_else_is(harness, framing):
    a, b, router = two(harness, model_alias=["fast=b"])
    seen = []
    b.worker.answer = lambda connection, message: (seen.append(message), b.answer(connection, message))
    client = harness.client(router)
    body = b'{ "x" : "fast" ,"model": "f\\u0061st" , "messages":["fast"]}'
    if framing == "length":
        client.send(request("POST", CHAT, body=body), request("GET", "/liveness"))
    else:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head, chunked(body[:9], body[9:]), request("GET", "/liveness"))
    assert by(client.read_response()) == b.url
    assert client.read_response().body == b"OK"
    assert seen[-1].body == b'{ "x" : "fast" ,"model": "b" , "messages":["fast"]}'
    assert seen[-1].get("content-length") == str(len(seen[-1].body))
    assert a.served == []
    cards = json.loads(client.ask("GET", "/v1/models").body)["data"]
    assert [(card["id"], card["root"]) for card in cards] == [("a", "a"), ("b", "b"), ("fast", "b")]


def test_an_alias_works_in_a_fleet_of_one_model_and_without_polls(harness):
    worker = ModelWorker(harness, "Qwen/Qwen3-8B")
    router = harness.router(worker, model_alias=["fast=Qwen/Qwen3-8B"])
    client = harness.client(router)
    assert post(client, "fast").status == 200
    assert worker.served == ["Qwen/Qwen3-8B"]
    assert [c["id"] for c in json.loads(client.ask("GET", "/v1/models").body)["data"]] == [
        "Qwen/Qwen3-8B",
        "fast",
    ]


def test_a_weighted_alias_is_chosen_by_session(harness):
    a, b, router = two(harness, model_alias=["prod=a:90,b:10"])
    client = harness.client(router)
    for n in range(200):
        urls = {
            by(client.ask("POST", CHAT, ("X-Session-ID", f"s{n}"), body=b'{"model": "prod"}')) for _ in "12"
        }
        assert len(urls) == 1
    assert 10 <= len(b.served) <= 100
    assert len(a.served) + len(b.served) == 400
    for _ in range(100):
        assert post(client, "prod").status == 200
    assert len(a.served) > len(b.served)


def test_an_alias_of_a_model_that_nobody_serves_is_unknown(harness):
    _a, _b, router = two(harness, model_alias=["fast=gone"])
    answer = post(harness.client(router), "fast")
    assert (answer.status, error_of(answer)["code"]) == (404, "model_not_found")


# ---- the model in a query


def upgrade(client, target):
    client.send(request("GET", target, ("Connection", "Upgrade"), ("Upgrade", "websocket"), *KEY))
    return client.read_head()


KEY = (("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), ("Sec-WebSocket-Version", "13"))


def test_a_request_without_a_body_takes_the_model_of_its_query(harness):
    """Row 16: realtime sessions and GETs went to any worker of a fleet of several models."""
    a, b, router = two(harness, model_alias=["fast/1=b"], policy="round_robin")
    client = harness.client(router)
    for _ in range(3):
        assert client.ask("GET", "/v1/realtime/x?intent=t&model=b&y=1").status == 200
        assert client.ask("GET", "/v1/x?model=fast%2F1").status == 200
        assert client.ask("DELETE", "/x?model=b").status == 200
    targets = [message.target for message in b.worker.requests]
    assert sum("model=" in target for target in targets) == 9
    assert targets.count("/v1/x?model=b") == 3  # as an alias in a body is replaced
    assert targets.count("/v1/realtime/x?intent=t&model=b&y=1") == 3
    assert not any("model=" in message.target for message in a.worker.requests)


def test_a_websocket_takes_it_too(harness):
    """Row 16: OpenAI's realtime clients name the model in the query alone."""
    _a, b, router = two(harness, policy="round_robin")
    for _ in range(3):
        assert upgrade(harness.client(router), "/v1/realtime?model=b").status == 200  # refused there
    assert [message.target for message in b.worker.requests].count("/v1/realtime?model=b") == 3
    refused = upgrade(harness.client(router), "/v1/realtime?model=c")
    assert refused.status == 404


def test_a_query_that_names_no_model_of_the_fleet(harness):
    """Row 16: 404 as for a body; but a path that is no API's means what it means to its worker."""
    a, b, router = two(harness)
    client = harness.client(router)
    answer = client.ask("GET", "/v1/realtime?model=c")
    assert (answer.status, error_of(answer)["code"]) == (404, "model_not_found")
    assert client.ask("GET", "/docs?model=c").status == 200
    assert client.ask("GET", "/v1/x?model=").status == 200
    assert by(post(client, "b", path=CHAT + "?model=a")) == b.url  # the body counts
    one = ModelWorker(harness, "a")
    router = harness.router(one, **KNOWN)
    wait_until_known(router, 1)
    assert harness.client(router).ask("GET", "/v1/x?model=other").status == 200
    assert a.worker.requests
