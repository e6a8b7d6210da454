"""Priority classes on the wire: who waits for a worker, who is dispatched next, and who is rejected."""

import json
import re
import threading

import pytest

from tests.fakes.harness import QUIET, error_of
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.wire import chunk, chunked, eventually, request, response
from vllm_router import _core

PATH = "/v1/completions"
JSON = ("Content-Type", "application/json")
STREAM = b'{"model":"m","prompt":"hi","stream":true}'
WHOLE = b'{"model":"m","prompt":"hi"}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# Each class gets one prompt at a time to a worker.
IDLE = "class default gate=idle_only kv_ceiling=0.5\nclass batch kv_ceiling=0.5"
TRUSTED = {"trusted_addresses": ["127.0.0.1"]}
ONE = {"max_worker_requests": 1}


class Held:
    """A worker whose streams get their first token, and end, when they are told to."""

    def __init__(self, harness):
        self.first, self.last = threading.Semaphore(0), threading.Semaphore(0)
        self.lock = threading.Lock()
        self.order = []
        self.more = lambda _who: b""  # before the end
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def answer(self, connection, message):
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        with self.lock:
            self.order.append(message.get("x-who"))
        assert self.first.acquire(timeout=30)
        connection.send(HEAD + chunk(b"data: 1\n\n"))
        assert self.last.acquire(timeout=30)
        connection.send(self.more(message.get("x-who")) + chunked(b"data: [DONE]\n\n"))

    def begin(self, count=1):
        self.first.release(count)

    def end(self, count=1):
        self.begin(count)
        self.last.release(count)


def metrics(router, name):
    """The series of a family by the values of their labels."""
    found = {}
    for labels, value in re.findall(
        rf"^vllm_router_{name}\{{([^}}]*)\}} (\S+)$", router.server.metrics_text(), re.MULTILINE
    ):
        found[",".join(re.findall(r'"([^"]*)"', labels))] = float(value)
    return found


def waiting(router):
    depth = metrics(router, "class_queue_depth")
    return [int(depth[name]) for name in ("interactive", "default", "batch")]


def ask(harness, router, of_class="default", who="?", body=STREAM):
    client = harness.client(router)
    client.send(request("POST", PATH, JSON, ("x-smg-priority", of_class), ("x-who", who), body=body))
    return client


def rejected(client, status, code):
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (status, code)
    assert 1 <= int(answer.get("retry-after")) <= 75
    return answer


def served(*clients):
    for client in clients:
        assert client.read_response().status == 200


def hold(harness, router, held, **how):
    """A request that has the only place at the worker."""
    client = ask(harness, router, "interactive", "holder", **how)
    eventually(lambda: held.order == ["holder"])
    return client


def test_the_higher_class_is_dispatched_first(harness):
    held = Held(harness)
    router = harness.router(
        held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch", **TRUSTED
    )
    clients = [hold(harness, router, held)]
    for number, of_class in enumerate(["batch", "default", "batch", "interactive"]):
        clients.append(ask(harness, router, of_class, f"{of_class}{number}"))
        eventually(lambda number=number: sum(waiting(router)) == number + 1)
    assert waiting(router) == [1, 1, 2]
    held.end(5)
    served(*clients)
    assert held.order == ["holder", "interactive3", "default1", "batch0", "batch2"]
    assert waiting(router) == [0, 0, 0]
    dispatched = metrics(router, "class_dispatched_total")
    assert dispatched["interactive,direct"] == dispatched["interactive,queued"] == 1
    assert (dispatched["default,queued"], dispatched["batch,queued"]) == (1, 2)
    assert metrics(router, "class_queue_wait_seconds_count")["batch"] == 2


def test_an_aged_request_goes_before_the_class_above(harness):
    held = Held(harness)
    lines = "class default gate=gated age_after_ms=1"
    router = harness.router(held, routing=ONE, load_poll_interval_secs=0, admission_config=lines, **TRUSTED)
    clients = [hold(harness, router, held)]
    for number, of_class in enumerate(["default", "interactive"]):
        clients.append(ask(harness, router, of_class, of_class))
        eventually(lambda number=number: sum(waiting(router)) == number + 1)
    held.end(3)
    served(*clients)
    assert held.order == ["holder", "default", "interactive"]
    assert metrics(router, "class_dispatched_total")["default,aged"] == 1


def test_an_idle_only_class_gets_one_prompt_at_a_time(harness):
    held = Held(harness)
    router = harness.router(held, load_poll_interval_secs=0, admission_config=IDLE)
    clients = [ask(harness, router, "batch", "0")]
    eventually(lambda: held.order == ["0"])
    clients.append(ask(harness, router, "batch", "1"))
    eventually(lambda: waiting(router) == [0, 0, 1])
    held.begin()  # the first token of the one lets the other in
    eventually(lambda: held.order == ["0", "1"])
    held.begin()
    held.last.release(2)
    served(*clients)


def test_a_response_in_one_piece_is_past_its_prompt_by_estimate(harness):
    held = Held(harness)
    router = harness.router(held, load_poll_interval_secs=0, admission_config=IDLE)
    clients = [ask(harness, router, "batch", "0", body=WHOLE)]
    eventually(lambda: held.order == ["0"])
    clients.append(ask(harness, router, "batch", "1", body=WHOLE))
    eventually(lambda: held.order == ["0", "1"])  # though the worker has sent nothing
    held.end(2)
    served(*clients)


def test_the_policy_chooses_among_workers_with_room(harness):
    first, other = Held(harness), Held(harness)
    router = harness.router(
        first, other, policy="consistent_hash", load_poll_interval_secs=0, admission_config=IDLE, **TRUSTED
    )
    session = b'{"model":"m","prompt":"hi","stream":true,"session_id":"s"}'
    clients = [ask(harness, router, "interactive", "0", body=session)]
    eventually(lambda: len(first.order) + len(other.order) == 1)
    home, away = (first, other) if first.order else (other, first)
    clients.append(ask(harness, router, "batch", "1", body=session))
    eventually(lambda: away.order == ["1"])
    clients.append(ask(harness, router, "interactive", "2", body=session))
    eventually(lambda: home.order == ["0", "2"])  # for which every worker has room
    home.end(2)
    away.end()
    served(*clients)


def document(name, question=""):
    text = "".join(f"{name}, sentence {number}. " for number in range(300))
    return json.dumps({"model": "m", "stream": True, "prompt": text + question}).encode()


def test_of_those_that_wait_one_whose_prompt_the_worker_has_goes_first(harness):
    at = Held(harness), Held(harness)
    router = harness.router(
        *at,
        policy="kv_overlap",
        routing=ONE,
        load_poll_interval_secs=0,
        admission_config="class batch",
    )
    clients = [ask(harness, router, who=name, body=document(name)) for name in ("one", "two")]
    eventually(lambda: all(held.order for held in at))
    one, two = sorted(at, key=lambda held: held.order)
    for number, name in enumerate(("two", "one")):
        clients.append(ask(harness, router, who=f"{name} again", body=document(name, "Why?")))
        eventually(lambda number=number: sum(waiting(router)) == number + 1)
    one.end()
    eventually(lambda: one.order == ["one", "one again"])  # though the other one is older
    two.end()
    eventually(lambda: two.order == ["two", "two again"])
    one.end()
    two.end()
    served(*clients)


def test_tenants_are_served_by_their_weights(harness):
    held = Held(harness)
    lines = "class batch\ntenant weight=4 search"
    router = harness.router(
        held,
        routing=ONE,
        load_poll_interval_secs=0,
        admission_config=lines,
        tenant_header="x-tenant",
        **TRUSTED,
    )
    clients = [hold(harness, router, held)]
    for number, tenant in enumerate(["search", "others"] * 12):
        client = harness.client(router)
        client.send(request("POST", PATH, JSON, ("x-tenant", tenant), ("x-who", tenant), body=STREAM))
        clients.append(client)
        eventually(lambda number=number: sum(waiting(router)) == number + 1)
    held.end(25)
    served(*clients)
    assert [held.order[1:11].count(tenant) for tenant in ("search", "others")] == [8, 2]


def test_a_tenant_that_asks_for_no_usage_pays_what_was_streamed(harness):
    held = Held(harness)
    held.more = lambda who: chunk(b"data: 1\n\n" * 999) if who == "quiet" else b""
    router = harness.router(
        held,
        routing=ONE,
        load_poll_interval_secs=0,
        admission_config="class batch",
        tenant_header="x-tenant",
        **TRUSTED,
    )
    clients = [hold(harness, router, held)]
    for number, tenant in enumerate(["quiet", "quiet"] + ["honest"] * 5):
        client = harness.client(router)
        client.send(request("POST", PATH, JSON, ("x-tenant", tenant), ("x-who", tenant), body=STREAM))
        clients.append(client)
        eventually(lambda number=number: sum(waiting(router)) == number + 1)
    held.end(8)
    served(*clients)
    # Twice 1,000 tokens, and as expected twice 256 for each of the others.
    assert held.order == ["holder", "quiet", *["honest"] * 4, "quiet", "honest"]


def test_an_engine_is_told_the_class(harness):
    bodies = []

    def answer(connection, message):
        bodies.append(json.loads(message.body) if message.method == "POST" else None)
        connection.send(response(200, b"hello"))

    lines = "class batch\nengine vllm client=clamp"
    router = harness.router(
        harness.worker(answer), load_poll_interval_secs=0, admission_config=lines, **TRUSTED
    )
    asked = {"model": "m", "prompt": "hi", "priority": -5}
    for of_class, body in (("batch", WHOLE), ("default", WHOLE), ("batch", json.dumps(asked).encode())):
        served(ask(harness, router, of_class, body=body))
    client = harness.client(router)
    client.send(request("POST", "/v1/embeddings", JSON, ("x-smg-priority", "batch"), body=WHOLE))
    served(client)
    for path in ("/v1/responses", "/v1/%63ompletions"):
        fields = (JSON, ("x-smg-priority", "batch"))
        client.send(request("POST", path, *fields, body=json.dumps(asked).encode()))
        served(client)
    told = [body.get("priority") for body in bodies if body is not None]
    assert told == [10, None, 10, None, 10, 10]


class HeldModel(ModelWorker):
    """A worker of a model whose responses are held until `gate` is opened; `order`: who is there."""

    def __init__(self, harness, *models):
        self.order, self.gate = [], threading.Semaphore(0)
        super().__init__(harness, *models)

    def _serve(self, connection, message):
        self.order.append(message.get("x-who"))
        assert self.gate.acquire(timeout=30)
        connection.send(response(200, b"{}"))


def test_who_waits_for_a_model_goes_with_its_workers(harness):
    workers = [HeldModel(harness, name) for name in "abbc"]
    router = harness.router(
        *workers, load_poll_interval_secs=0, admission_config=IDLE, model_refresh_secs=3600
    )
    wait_until_known(router, 3)

    def ask_for(model, who):
        body = json.dumps({"model": model, "prompt": "hi", "stream": True}).encode()
        return ask(harness, router, "batch", who, body)

    def pools():
        page = json.loads(harness.client(router).ask("GET", "/admin/admission").body)
        return {pool["model"]: pool["workers"] for pool in page["pools"]}

    clients = [ask_for("b", "holder"), ask_for("b", "holder"), ask_for("c", "c0")]
    eventually(lambda: all(worker.order for worker in workers[1:]))
    clients += [ask_for("b", "b1"), ask_for("c", "c1")]
    eventually(lambda: waiting(router) == [0, 0, 2])
    assert pools() == {"b": 2, "c": 1}
    # The others have other positions now, and b has other workers.
    for worker in workers[:2]:
        router.core.remove_worker(worker.url)
    eventually(lambda: pools() == {"b": 1, "c": 1})
    assert waiting(router) == [0, 0, 2]
    workers[3].gate.release(2)
    eventually(lambda: workers[3].order == ["c0", "c1"])
    assert waiting(router) == [0, 0, 1]
    for worker in workers[1:3]:
        worker.gate.release(2)
    served(*clients)
    assert workers[2].order == ["holder", "b1"]


def test_who_waits_goes_on_when_there_are_no_classes_any_more(harness):
    held = Held(harness)
    settings = {name: value for name, value in QUIET.items() if name in _core.Server.live_option_names}
    settings["load_poll_interval_secs"] = 0
    router = harness.router(held, routing=ONE, load_poll_interval_secs=0, **TRUSTED)
    first = hold(harness, router, held)
    router.server.apply({**settings, "admission_config": "class batch"}, None, 0.0, 0.0, False)
    clients = [ask(harness, router) for _ in range(4)]
    eventually(lambda: waiting(router) == [0, 4, 0])
    router.server.apply({**settings, "admission_config": ""}, None, 0.0, 0.0, False)
    held.end(5)
    served(first, *clients)


def test_a_retry_is_not_admitted_again(harness):
    refusing, held = harness.refusing_port(), Held(harness)
    router = harness.router(
        refusing, held, load_poll_interval_secs=0, admission_config=IDLE, disable_retries=False
    )
    clients = []
    for number in range(2):
        clients.append(ask(harness, router, "batch", str(number)))
        eventually(lambda number=number: len(held.order) == number + 1)
        held.begin()
        clients[-1].read_head()
    held.last.release(2)
    router.must_rest()
    dispatched = metrics(router, "class_dispatched_total")
    assert dispatched["batch,direct"] + dispatched["batch,queued"] == 2


def test_a_full_queue_rejects_and_displaces(harness):
    held = Held(harness)
    lines = "class default queue_size=1\nclass batch queue_size=1"
    router = harness.router(held, routing=ONE, load_poll_interval_secs=0, admission_config=lines, **TRUSTED)
    holder = hold(harness, router, held)
    batch = ask(harness, router, "batch", "batch")
    eventually(lambda: waiting(router) == [0, 0, 1])
    rejected(ask(harness, router, "batch"), 429, "queue_full")
    kept = [ask(harness, router, "default", "first")]
    eventually(lambda: waiting(router) == [0, 1, 1])
    kept.append(ask(harness, router, "default", "second"))
    rejected(batch, 429, "displaced")
    assert waiting(router) == [0, 2, 0]
    held.end(3)
    served(holder, *kept)
    assert metrics(router, "class_rejected_total") == {
        "interactive,queue_full": 0,
        "interactive,displaced": 0,
        "interactive,queue_timeout": 0,
        "default,queue_full": 0,
        "default,displaced": 0,
        "default,queue_timeout": 0,
        "batch,queue_full": 1,
        "batch,displaced": 1,
        "batch,queue_timeout": 0,
    }


def test_a_wait_has_an_end(harness):
    held = Held(harness)
    router = harness.router(
        held,
        routing=ONE,
        load_poll_interval_secs=0,
        admission_config="class batch queue_timeout_ms=200",
        **TRUSTED,
    )
    holder = hold(harness, router, held)
    rejected(ask(harness, router, "batch"), 408, "queue_timeout")
    assert waiting(router) == [0, 0, 0]
    held.end()
    served(holder)


def test_a_client_that_leaves_gives_up_its_place(harness):
    held = Held(harness)
    router = harness.router(
        held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch", **TRUSTED
    )
    clients = [hold(harness, router, held)]
    gone = ask(harness, router, "default", "gone")
    eventually(lambda: waiting(router) == [0, 1, 0])
    clients.append(ask(harness, router, "batch", "stays"))
    eventually(lambda: waiting(router) == [0, 1, 1])
    gone.reset()
    eventually(lambda: waiting(router) == [0, 0, 1])
    held.end(2)
    served(*clients)
    assert held.order == ["holder", "stays"]


def test_who_waits_learns_that_there_is_no_worker_any_more(harness):
    held = Held(harness)
    router = harness.router(
        held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch", **TRUSTED
    )
    holder = hold(harness, router, held)
    waiter = ask(harness, router, "batch")
    eventually(lambda: waiting(router) == [0, 0, 1])
    router.core.drain_worker(held.url)
    answer = waiter.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")
    held.end()
    served(holder)


def test_a_worker_that_joins_has_room(harness):
    held, fresh = Held(harness), Held(harness)
    router = harness.router(
        held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch", **TRUSTED
    )
    clients = [hold(harness, router, held), ask(harness, router, "batch", "waits")]
    eventually(lambda: waiting(router) == [0, 0, 1])
    router.core.add_worker(fresh.url)
    eventually(lambda: fresh.order == ["waits"])
    held.end()
    fresh.end()
    served(*clients)


def test_a_stop_ends_the_wait_before_what_is_under_way(harness):
    held = Held(harness)
    router = harness.router(
        held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch", **TRUSTED
    )
    router.may_cut = True
    holder = hold(harness, router, held)
    waiter = ask(harness, router, "batch")
    eventually(lambda: waiting(router) == [0, 0, 1])
    router.shutdown()
    answer = waiter.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "shutting_down")
    held.end()
    served(holder)
    router.must_end()


def test_only_requests_for_a_model_wait(harness):
    held = Held(harness)
    router = harness.router(held, load_poll_interval_secs=0, admission_config=IDLE)
    first = ask(harness, router, "batch", "0")
    eventually(lambda: held.order == ["0"])
    assert harness.client(router).ask("GET", "/x").body == b"hello"
    held.end()
    served(first)


@pytest.mark.parametrize("path", ["/v1/%63ompletions", "/vertex_generate"])
def test_a_path_that_is_not_known_passes_no_queue(harness, path):
    held = Held(harness)
    router = harness.router(
        held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch", **TRUSTED
    )
    clients = [hold(harness, router, held)]
    client = harness.client(router)
    client.send(request("POST", path, JSON, ("x-smg-priority", "batch"), ("x-who", "unknown"), body=STREAM))
    clients.append(client)
    eventually(lambda: waiting(router) == [0, 0, 1])
    held.end(2)
    served(*clients)
    assert held.order == ["holder", "unknown"]


def test_a_claim_needs_a_trusted_peer(harness):
    held = Held(harness)
    router = harness.router(held, routing=ONE, load_poll_interval_secs=0, admission_config="class batch")
    client = ask(harness, router, "interactive", "holder")
    eventually(lambda: held.order == ["holder"])
    held.end()
    served(client)
    assert metrics(router, "class_dispatched_total")["default,direct"] == 1


def test_what_the_log_says(harness, written_to):
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        held = Held(harness)
        router = harness.router(
            held,
            routing=ONE,
            load_poll_interval_secs=0,
            admission_config="class batch",
            access_log=True,
            **TRUSTED,
        )
        clients = [hold(harness, router, held), ask(harness, router, "batch", "waits")]
        eventually(lambda: waiting(router) == [0, 0, 1])
        held.end(2)
        served(*clients)
        eventually(lambda: stdout().count("\n") >= 2)
        first, second = map(json.loads, stdout().splitlines()[:2])
    finally:
        _core.configure_log()
    assert (first["class"], first["dispatch"]) == ("interactive", "direct")
    assert "queue_ms" not in first
    assert (second["class"], second["dispatch"]) == ("batch", "queued")
    assert second["queue_ms"] > 0


def test_without_a_file_nothing_is_different(harness, written_to):
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        router = harness.router(harness.worker(), access_log=True)
        served(ask(harness, router, "interactive"))
        eventually(lambda: "\n" in stdout())
        line = json.loads(stdout().splitlines()[0])
    finally:
        _core.configure_log()
    assert not {"class", "tenant", "dispatch"} & line.keys()
    page = harness.client(router).ask("GET", "/admin/admission")
    assert json.loads(page.body) == {"enabled": False}
    assert not any(metrics(router, "class_dispatched_total").values())


def test_the_page_says_why_a_class_waits(harness):
    held = Held(harness)
    router = harness.router(
        held, load_poll_interval_secs=0, admission_config=IDLE + " age_after_ms=0", **TRUSTED
    )
    clients = [ask(harness, router, "interactive", "0")]
    eventually(lambda: held.order == ["0"])
    clients.append(ask(harness, router, "batch", "1"))
    eventually(lambda: waiting(router) == [0, 0, 1])
    page = json.loads(harness.client(router).ask("GET", "/admin/admission").body)
    assert (page["enabled"], page["order"]) == (True, "strict")
    assert [row["class"] for row in page["classes"]] == ["interactive", "default", "batch"]
    assert page["classes"][2] == {
        "class": "batch",
        "queue_size": 8192,
        "queue_timeout_secs": 600,
        "gate": "idle_only",
        "kv_ceiling": 0.5,
    }
    (pool,) = page["pools"]
    assert (pool["model"], pool["workers"], pool["choosing"]) == (None, 1, 0)
    assert pool["higher_class_active"]
    batch = pool["classes"][2]
    assert (batch["waiting"], batch["workers_with_room"], batch["closed"]) == (1, 0, {"waiting": 1})
    eventually(lambda: metrics(router, "class_closed_seconds_total")["batch,waiting"] > 0)
    held.end(2)
    served(*clients)


def test_two_stages_are_rejected(harness):
    with pytest.raises(ValueError, match="admission_config is set, and the fleet has prefill and decode"):
        harness.router(
            routing={
                "prefill_urls": ["http://127.0.0.1:1"],
                "decode_urls": ["http://127.0.0.1:2"],
            },
            load_poll_interval_secs=0,
            admission_config="class batch",
        )


def test_a_mistake_in_the_lines_is_rejected(harness):
    with pytest.raises(ValueError, match='admission_config, line 1: queue_size is "x"'):
        harness.router(
            harness.worker(), load_poll_interval_secs=0, admission_config="class batch queue_size=x"
        )


@pytest.mark.parametrize("threads", [1, 3])
def test_over_all_threads_nobody_is_lost(harness, threads):
    worker = harness.worker(lambda connection, _message: connection.send(response(200, b"hello")))
    router = harness.router(
        worker,
        routing={"max_worker_requests": 2},
        load_poll_interval_secs=0,
        admission_config="class batch",
        threads=threads,
        **TRUSTED,
    )
    clients = [
        ask(harness, router, ["interactive", "default", "batch"][number % 3], body=WHOLE)
        for number in range(60)
    ]
    served(*clients)
    eventually(lambda: waiting(router) == [0, 0, 0])
    assert sum(metrics(router, "class_dispatched_total").values()) == 60
