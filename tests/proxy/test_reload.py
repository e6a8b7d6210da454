"""Settings that change while requests run: SIGHUP, /admin/reload, Server.reload(), a watched file."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.fakes.harness import Streaming
from tests.fakes.models import ModelWorker
from tests.fakes.wire import eventually, request, response
from vllm_router import Router
from vllm_router import _core_testing as testing
from vllm_router.launch_router import _checked, _loaded, _make_parser, _settings_file
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.server import Server

SECRET = "sk-which-nobody-may-see"
RELOADS = int(os.environ.get("VLLM_ROUTER_TEST_RELOADS", "40"))


def replace(path, text):
    """As an editor or Kubernetes does it: at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


class Served:
    """A router in this process that was started with a file of settings, as the command does it."""

    def __init__(self, harness, path, text, *line):
        self.harness, self.path = harness, path
        path.write_text(text)
        arguments = ["--config", str(path), "--host=127.0.0.1", "--port=0", "--prometheus-port=0", *line]
        loaded = _checked(_loaded(arguments, _make_parser()))
        self.router = Router.from_args(loaded.args)
        self.server = Server(self.router, loaded.args, [], _settings_file(arguments, loaded))

    def client(self):
        return self.harness.client_at(self.server.port)

    def reload(self, text, query=""):
        """(status, what POST /admin/reload says)"""
        replace(self.path, text)
        answer = self.client().ask("POST", f"/admin/reload{query}")
        return answer.status, json.loads(answer.body)

    def config(self, name=None):
        answer = self.client().ask("GET", "/admin/config")
        assert answer.status == 200
        said = json.loads(answer.body)
        return said if name is None else said["settings"][name]["value"]

    def metric(self, name):
        text = self.server.metrics()
        return {
            labels: float(value)
            for labels, value in re.findall(rf"^vllm_router_{name}(?:{{([^}}]*)}})? (\S+)$", text, re.M)
        }

    def close(self):
        self.server.stop(5)
        del self.server, self.router

    def workers(self):
        return {worker.url: worker.draining for worker in self.router.workers}


@pytest.fixture
def serve(harness, tmp_path):
    served = []

    def make(text, *line):
        served.append(Served(harness, tmp_path / "router.yaml", text, *line))
        return served[-1]

    yield make
    for one in served:
        one.close()


def of_workers(*workers):
    return f"worker_urls: [{', '.join(worker.url for worker in workers)}]\npolicy: round_robin\n"


# What a reload does


def test_the_next_request_sees_what_the_file_says(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker) + "max_payload_size: 10")
    client = it.client()
    assert client.ask("POST", body=b"12345").status == 200
    status, said = it.reload(of_workers(worker) + "max_payload_size: 4")
    assert status == 200
    assert said == {
        "result": "applied",
        "dry_run": False,
        "generation": 2,
        "message": "reloaded router.yaml: max_payload_size 10 -> 4",
        "changes": [{"setting": "max_payload_size", "from": 10, "to": 4, "live": "request"}],
    }
    assert client.ask("POST", body=b"12345").status == 413
    assert it.config("max_payload_size") == 4
    assert it.reload(of_workers(worker))[1]["result"] == "applied"
    assert client.ask("POST", body=b"12345").status == 200, "a setting that is gone has its default"
    assert it.config("max_payload_size") == FLAGS["max_payload_size"].default


@pytest.mark.parametrize(
    ("text", "result", "words"),
    [
        ("max_payload_size: [", "invalid", "is not YAML"),
        ("max_payload_size: 4\nthreads: 7", "refused", "threads 0 -> 7 needs a restart"),
        ("max_payload_size: 4\npolicy: random\nport: 1", "refused", "policy round_robin -> random"),
        ("max_payload_size: 4\nworker_urls: [http://a:1, http://A:1]", "invalid", "twice"),
        (
            "max_payload_size: 4\nhealth_check_interval_secs: 0",
            "refused",
            "health_check_interval_secs 10 -> 0",
        ),
    ],
)
def test_a_mistake_leaves_everything_as_it_was(harness, serve, text, result, words):
    worker = harness.worker()
    it = serve(of_workers(worker) + "max_payload_size: 10\nqueue_size: 7")
    before, options = it.config(), testing.settings(it.server._core)
    without = [name for name in ("worker_urls", "policy") if f"{name}:" not in text]
    base = "".join(line + "\n" for line in of_workers(worker).split("\n") if line.split(":")[0] in without)
    status, said = it.reload(f"{base}queue_size: 9\n{text}")
    assert (status, said["result"], said["generation"]) == (409, result, 1)
    assert words in said["message"]
    assert said["message"].endswith("nothing was changed")
    assert it.config() == before
    assert testing.settings(it.server._core) == options
    assert it.workers() == {worker.url: False}
    client = it.client()
    assert client.ask("POST", body=b"12345").status == 200
    assert it.metric("config_reloads_total") == {
        f'result="{name}"': float(name == result) for name in ("applied", "unchanged", "refused", "invalid")
    }


def test_a_dry_run_says_what_a_reload_would_do(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    status, said = it.reload(of_workers(worker) + "queue_size: 9", "?dry_run=1")
    assert (status, said["result"], said["dry_run"], said["generation"]) == (200, "would_apply", True, 1)
    assert it.config("queue_size") == 100
    assert it.reload("port: 9", "?dry_run=1")[0] == 409
    assert it.reload("worker_urls: [http://a:1, http://A:1]", "?dry_run=1")[0] == 409
    assert sum(it.metric("config_reloads_total").values()) == 0
    answer = it.client().ask("POST", "/admin/reload?dry_run=yes")
    assert (answer.status, b"must be 1, 0, true or false" in answer.body) == (400, True)


def test_metrics_count_and_date_the_reloads(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    (began,) = it.metric("config_last_success_timestamp_seconds").values()
    assert began <= time.time() < began + 60
    assert it.metric("config_generation") == {"": 1}
    for size in (1, 2, 2):
        it.reload(of_workers(worker) + f"queue_size: {size}")
    it.reload("[")
    assert it.metric("config_generation") == {"": 3}
    assert it.metric("config_reloads_total") == {
        'result="applied"': 2,
        'result="unchanged"': 1,
        'result="refused"': 0,
        'result="invalid"': 1,
    }


# Requests under way


def test_a_request_under_way_keeps_its_settings(harness, serve):
    def answer(connection, message):
        if message.target == "/x":
            gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    gate = worker.gate()
    it = serve(of_workers(worker))
    client = it.client()
    client.send(request("GET", "/x"))
    gate.wait_for_someone()
    assert it.reload(of_workers(worker) + "decision_headers: true")[0] == 200
    gate.open()
    assert client.read_response().get("x-vllm-router-reason") is None
    assert client.ask().get("x-vllm-router-reason") is not None


def test_a_wait_for_a_model_goes_on_and_the_next_request_has_none(harness, serve):
    worker = ModelWorker(harness, "a")
    workers = of_workers(worker) + "models: [big]\n"
    it = serve(workers + "model_wait_secs: 600")
    eventually(lambda: it.metric("models") == {"": 1})
    client = it.client()
    client.send(request("POST", "/v1/completions", body=b'{"model": "big"}'))
    eventually(lambda: it.metric("model_waiting_requests").get('model="big"') == 1)
    assert it.reload(workers + "model_wait_secs: 0")[0] == 200
    assert it.client().ask("POST", "/v1/completions", body=b'{"model": "big"}').status == 503
    worker.cards["big"] = None
    it.client().ask("GET", "/v1/models?refresh=1")
    assert client.read_response().status == 200


def test_a_lower_limit_of_requests_cuts_none_and_a_higher_one_lets_the_queue_in(harness, serve):
    streaming = Streaming(harness)
    it = serve(of_workers(streaming) + "max_concurrent_requests: 2")
    clients = [it.client() for _ in range(4)]
    for client in clients[:2]:
        client.send(request("POST", "/x", body=b"{}"))
        streaming.gate.wait_for_someone()
    assert it.reload(of_workers(streaming) + "max_concurrent_requests: 1")[0] == 200
    for client in clients[2:]:
        client.send(request("POST", "/x", body=b"{}"))
    eventually(lambda: it.metric("queue_depth") == {"": 2})
    assert it.reload(of_workers(streaming) + "max_concurrent_requests: 4")[0] == 200
    for _ in clients[2:]:
        streaming.gate.wait_for_someone()
    streaming.gate.open()
    assert [client.read_response().status for client in clients] == [200] * 4


def test_a_shorter_queue_keeps_those_that_wait(harness, serve):
    streaming = Streaming(harness)
    limits = of_workers(streaming) + "max_concurrent_requests: 1\n"
    it = serve(limits + "queue_size: 2")
    clients = [it.client() for _ in range(3)]
    clients[0].send(request("POST", "/x", body=b"{}"))
    streaming.gate.wait_for_someone()
    for client in clients[1:]:
        client.send(request("POST", "/x", body=b"{}"))
    eventually(lambda: it.metric("queue_depth") == {"": 2})
    assert it.reload(limits + "queue_size: 1")[0] == 200
    assert it.client().ask("POST", body=b"{}").status == 429
    streaming.gate.open()
    assert [client.read_response().status for client in clients] == [200] * 3


def test_a_rate_limit_begins_and_ends(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    client = it.client()
    it.reload(of_workers(worker) + "rate_limit_tokens_per_second: 1")
    statuses = [client.ask().status for _ in range(4)]
    assert statuses[0] == 200
    assert 429 in statuses
    replace(it.path, of_workers(worker))
    assert it.server.reload().ok
    assert {client.ask().status for _ in range(20)} == {200}


def test_origins_of_pages_change(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    client = it.client()
    origin = ("Origin", "https://chat.example")
    assert client.ask("GET", "/v1/x", origin).get("access-control-allow-origin") is None
    it.reload(of_workers(worker) + "cors_allowed_origins: ['https://chat.example']")
    assert client.ask("GET", "/v1/x", origin).get("access-control-allow-origin") == origin[1]


def test_health_checks_follow_their_settings(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker) + "health_check_interval_secs: 600\nhealth_check_endpoint: /a")
    eventually(lambda: any(one.target == "/a" for one in worker.requests))
    more = "health_check_interval_secs: 0.2\nhealth_check_endpoint: /b"
    it.reload(of_workers(worker) + more)
    eventually(lambda: sum(one.target == "/b" for one in worker.requests) >= 3)


def test_load_polls_begin_and_end(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    it.reload(of_workers(worker) + "load_poll_interval_secs: 0.05")
    polled = lambda: it.metric("load_polls_total")  # noqa: E731
    eventually(lambda: sum(polled().values()) >= 2)
    it.reload(of_workers(worker))
    assert it.config("load_poll_interval_secs") is None


def test_the_log_has_another_level(harness, serve, capfd):
    worker = harness.worker()
    it = serve(of_workers(worker) + "log_level: info")
    it.reload(of_workers(worker) + "log_level: error")
    it.reload(of_workers(worker) + "log_level: error\nqueue_size: 9")
    it.reload(of_workers(worker) + "log_level: info\nqueue_size: 8")
    text = capfd.readouterr().err
    assert "queue_size 100 -> 9" not in text
    assert "queue_size 9 -> 8" in text


# Workers


def test_a_worker_that_the_file_leaves_out_drains(harness, serve):
    streaming, other = Streaming(harness), harness.worker()
    it = serve(of_workers(streaming, other))
    client = it.client()
    client.send(request("POST", "/x", body=b"{}"))
    streaming.gate.wait_for_someone()
    status, said = it.reload(of_workers(other))
    assert (status, said["workers"]) == (200, {"joined": [], "left": [streaming.url], "held": []})
    assert said["message"] == f"reloaded router.yaml: worker_urls -{streaming.url} (drains)"
    assert it.workers() == {streaming.url: True, other.url: False}
    assert {it.client().ask().status for _ in range(4)} == {200}
    streaming.gate.open()
    assert client.read_response().status == 200
    eventually(lambda: it.workers() == {other.url: False})


def test_a_worker_that_the_file_adds_joins_once_it_passes_its_check(harness, serve):
    healthy = threading.Event()

    def answer(connection, message):
        connection.send(response(200 if healthy.is_set() or message.target != "/health" else 503, b"hello"))

    first, second = harness.worker(), harness.worker(answer)
    it = serve(of_workers(first))
    assert it.reload(of_workers(first, second))[0] == 200
    assert it.workers() == {first.url: False}
    healthy.set()
    eventually(lambda: it.workers() == {first.url: False, second.url: False})


def test_workers_that_are_all_replaced_serve_until_one_of_the_new_ones_does(harness, serve, capfd):
    healthy = threading.Event()

    def answer(connection, message):
        connection.send(response(200 if healthy.is_set() or message.target != "/health" else 503, b"hello"))

    old, new = harness.worker(), harness.worker(answer)
    it = serve(of_workers(old))
    expected = {"joined": [new.url], "left": [], "held": [old.url]}
    status, said = it.reload(of_workers(new), "?dry_run=1")
    assert (status, said["workers"]) == (200, expected)
    assert said["message"] == f"would reload router.yaml: worker_urls +{new.url} -{old.url} (held)"
    assert new.requests == []
    assert it.workers() == {old.url: False}
    status, said = it.reload(of_workers(new))
    assert (status, said["workers"]) == (200, expected)
    assert said["message"] == f"reloaded router.yaml: worker_urls +{new.url} -{old.url} (held)"
    new.wait_for_requests(2)  # checks that fail
    assert it.workers() == {old.url: False}
    assert {it.client().ask().status for _ in range(4)} == {200}
    assert f"{old.url}, which static leaves out, stay until" in capfd.readouterr().err
    healthy.set()
    eventually(lambda: it.workers() == {new.url: False})
    assert it.client().ask().status == 200


def test_a_worker_that_an_admin_has_removed_stays_away_until_the_list_changes(harness, serve):
    first, second = harness.worker(), harness.worker()
    it = serve(of_workers(first, second))
    assert it.client().ask("POST", f"/remove_worker?url={first.url}").status == 200
    it.reload(of_workers(first, second) + "queue_size: 9")
    assert it.workers() == {second.url: False}
    it.reload(of_workers(second))
    it.reload(of_workers(first, second))
    eventually(lambda: it.workers() == {first.url: False, second.url: False})


def test_a_file_without_workers_is_held(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    for query in ("?dry_run=1", "", "", "?dry_run=1"):
        status, said = it.reload("worker_urls: []\npolicy: round_robin", query)
        assert (status, said["workers"]) == (200, {"joined": [], "left": [], "held": [worker.url]})
        assert said["message"].endswith(f"worker_urls -{worker.url} (held)")
    assert (said["result"], said["message"].partition(";")[0]) == ("unchanged", "router.yaml has nothing new")
    assert it.workers() == {worker.url: False}
    assert it.client().ask().status == 200
    adopted = it.client().ask("POST", "/admin/discovery/adopt?source=static")
    assert (adopted.status, json.loads(adopted.body)["left"]) == (200, [worker.url])
    eventually(lambda: it.workers() == {})


def test_workers_of_the_admin_api_stay(harness, serve):
    first, second, added = harness.worker(), harness.worker(), harness.worker()
    it = serve(of_workers(first))
    assert it.client().ask("POST", f"/add_worker?url={added.url}").status == 200
    it.reload(of_workers(second, first))
    eventually(lambda: list(it.workers()) == [second.url, first.url, added.url])


# Who may, when, and what is told


def test_admin_keys_guard_both_endpoints(harness, serve, tmp_path):
    (tmp_path / "admins").write_text(SECRET + "\n")
    it = serve(of_workers(harness.worker()) + f"admin_api_key_file: {tmp_path / 'admins'}")
    client = it.client()
    for method, path in (("POST", "/admin/reload"), ("GET", "/admin/config")):
        assert client.ask(method, path).status == 401
        assert client.ask(method, path, ("Authorization", f"Bearer {SECRET}")).status == 200


def test_keys_are_read_again_although_the_file_of_settings_has_a_mistake(harness, serve, tmp_path):
    keys = tmp_path / "clients"
    keys.write_text("sk-old\n")
    it = serve(of_workers(harness.worker()) + f"client_api_key_file: {keys}")
    replace(keys, "sk-new\n")
    it.path.write_text("[")
    assert it.server.reload().result == "invalid"
    assert it.client().ask("GET", "/x", ("Authorization", "Bearer sk-new")).status == 200


def test_a_router_that_shuts_down_refuses(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker) + "shutdown_settle_secs: 3")
    client = it.client()
    assert client.ask().status == 200
    it.server.shutdown()
    eventually(lambda: it.client().ask("GET", "/readiness").status == 503)
    answer = client.ask("POST", "/admin/reload")
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (409, "shutting_down")
    assert it.server.reload().result == "refused"
    it.server.stop(0)


def test_reloads_that_come_together_end_one_after_the_other(harness, serve):
    worker = harness.worker()
    it = serve(of_workers(worker))
    replace(it.path, of_workers(worker) + "queue_size: 9")
    clients = [it.client() for _ in range(8)]
    for client in clients:
        client.send(request("POST", "/admin/reload"))
    results = [json.loads(client.read_response().body)["result"] for client in clients]
    assert sorted(results) == ["applied"] + ["unchanged"] * 7


def test_a_program_without_a_file_reads_its_keys(harness, tmp_path):
    keys = tmp_path / "clients"
    keys.write_text("sk-old\n")
    worker = harness.worker()
    router = Router("round_robin", [worker.url])
    with router.serve(client_api_key_file=str(keys), admin_port=0, queue_size=9) as server:
        replace(keys, "sk-new\n")
        admin = harness.client_at(int(server.admin_url.rsplit(":", 1)[1]))
        answer = admin.ask("POST", "/admin/reload")
        said = json.loads(answer.body)
        assert (answer.status, said["result"]) == (200, "unchanged")
        assert "was not started with --config" in said["message"]
        client = harness.client_at(server.port)
        assert client.ask("GET", "/x", ("Authorization", "Bearer sk-new")).status == 200
        settings = json.loads(admin.ask("GET", "/admin/config").body)["settings"]
        assert (settings["queue_size"]["value"], settings["queue_size"]["source"]) == (9, "program")
        assert settings["policy"]["value"] == "round_robin"
        assert settings["worker_urls"]["value"] == [worker.url]
    assert server.reload().result == "refused"


def test_a_server_that_is_dropped_ends_with_its_thread(harness):
    router = Router("round_robin", [harness.worker().url])
    server = router.serve()
    configuration = server._core.configuration
    server.stop()
    del server
    eventually(lambda: configuration.closed)
    assert configuration.request() is False


def test_the_thread_of_reloads_has_ended_before_the_interpreter_does(harness):
    """It would come back from the core meanwhile, which aborts the process."""
    router = Router("round_robin", [harness.worker().url])
    before = set(threading.enumerate())
    server = router.serve()
    (thread,) = (one for one in set(threading.enumerate()) - before if one.name == "reload")
    assert thread.is_alive()
    assert server._stop_reloading.atexit
    server._stop_reloading()  # as at the exit
    assert not thread.is_alive()
    server.stop()


def test_a_secret_is_never_shown(harness, serve, capfd):
    worker = harness.worker()
    it = serve(of_workers(worker) + f"api_key: {SECRET}\nlog_level: debug")
    said = [it.client().ask("GET", "/admin/config").body.decode()]
    for text in (f"api_key: {SECRET}2", f"api_key: [{SECRET}", f"api_key: {{{SECRET}: 1}}", f"{SECRET}: 1"):
        for query in ("?dry_run=1", ""):
            said.append(json.dumps(it.reload(of_workers(worker) + text, query)[1]))
    output = capfd.readouterr()
    said = [line for line in said if SECRET in line] + [
        line for line in (output.out + output.err).split("\n") if SECRET in line
    ]
    # The name of an unknown setting is shown, as at the start.
    assert [line for line in said if f"{SECRET} is not a known setting" not in line] == []


# Under load


def test_no_request_fails_while_settings_change(harness, serve):
    """A tenth of the files have mistakes; a worker comes and goes with each; every option is read back."""
    dice = random.Random(7)
    workers = [harness.worker() for _ in range(3)]
    it = serve(of_workers(*workers))
    over, failed, served = threading.Event(), [], [0]

    def ask():
        client = harness_client(it)
        while not over.is_set():
            ids = [("x-own-id", "own"), ("x-request-id", "other")]
            answer = client.ask("POST", "/v1/completions", *ids, body=b'{"prompt": "hello"}')
            served[0] += 1
            # No mixture: these two settings change together.
            pair = (answer.get("x-vllm-router-reason") is not None, answer.get("x-request-id") == "own")
            if answer.status != 200 or pair[0] != pair[1]:
                failed.append((answer.status, pair, answer.body))

    def harness_client(one):
        with lock:
            return one.client()

    lock = threading.Lock()
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    generation, last, slowest = 1, None, 0.0
    try:
        for number in range(RELOADS):
            both = number % 2 == 0
            some = dice.sample(workers, dice.randint(1, 3))
            text = of_workers(*some) + (
                f"retry_max_retries: {dice.randint(1, 9)}\nmax_concurrent_requests: {dice.randint(8, 99)}\n"
                f"max_payload_size: {dice.randint(100, 999)}\nqueue_timeout_secs: {dice.randint(10, 60)}\n"
                f"decision_headers: {str(both).lower()}\n"
                f"request_id_headers: [{'x-own-id' if both else 'x-request-id'}]\n"
            )
            mistake = dice.random() < 0.1
            began = time.monotonic()
            status, said = it.reload(text + "queue_size: many\n" * mistake)
            slowest = max(slowest, time.monotonic() - began)
            assert status == (409 if mistake else 200), said
            generation += said["result"] == "applied"
            last = last if mistake else text
            assert said["generation"] == generation
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failed == []
    assert it.metric("config_generation") == {"": generation}
    wanted = RouterArgs.from_yaml(last).server_options()
    # What the machine lowers or fills in, and what tests alone set.
    left = {
        "max_connections",
        "load_poll_interval_secs",
        "body_rate_window_secs",
        "hang_detection_min_secs",
    }
    in_force = testing.settings(it.server._core)
    for name in set(in_force) - left:
        expected = wanted[name]
        if isinstance(expected, str) and isinstance(in_force[name], int):
            continue  # a word, by its number
        expected = type(in_force[name])() if expected is None else expected
        assert (
            in_force[name] == pytest.approx(expected)
            if isinstance(expected, float)
            else (in_force[name] == expected)
        ), name
    print(f"{RELOADS} reloads, {served[0]} requests, slowest reload {slowest:.3f} s")


# The command


@contextlib.contextmanager
def command(path, *flags):
    """The process, its URL, and a list that grows by the lines it writes."""
    arguments = [sys.executable, "-m", "vllm_router.launch_router", "--config", str(path)]
    arguments += ["--host=127.0.0.1", "--port=0", "--prometheus-port=0", *flags]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stderr.readline, "")))
        reader.start()
        try:
            eventually(lambda: any(" serves http://" in line for line in lines), patience=30)
            (line,) = (line for line in lines if " serves http://" in line)
            yield process, int(line.split(" serves ")[1].split(": ")[0].rsplit(":", 1)[1]), lines
        finally:
            process.kill()
            reader.join()


def said(lines, words, times=1):
    eventually(lambda: sum(words in line for line in lines) == times, f"{words!r} in {lines}", patience=30)


def test_sighup_reads_the_file_of_settings(harness, tmp_path):
    worker = harness.worker()
    path = tmp_path / "router.yaml"
    path.write_text(of_workers(worker) + "max_payload_size: 10")
    with command(path) as (process, port, lines):
        assert harness.client_at(port).ask("POST", body=b"12345").status == 200
        replace(path, of_workers(worker) + "max_payload_size: 4")
        process.send_signal(signal.SIGHUP)
        said(lines, "reloaded router.yaml: max_payload_size 10 -> 4")
        assert harness.client_at(port).ask("POST", body=b"12345").status == 413
        replace(path, "threads: 9")
        process.send_signal(signal.SIGHUP)
        said(lines, "router.yaml was not taken: ")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_without_reloads_sighup_ends_the_command(harness, tmp_path):
    path = tmp_path / "router.yaml"
    path.write_text(of_workers(harness.worker()) + "config_reload: 'off'")
    with command(path) as (process, _, _):
        process.send_signal(signal.SIGHUP)
        assert process.wait(30) == -signal.SIGHUP


def test_a_file_that_is_watched_is_read_when_it_changes(harness, tmp_path):
    """By an atomic rename, by Kubernetes' links, and not while it is half written."""
    worker = harness.worker()
    mounted = tmp_path / "mounted"
    mounted.mkdir()

    def publish(number, text):
        version = mounted / f"..{number}"
        version.mkdir()
        (version / "router.yaml").write_text(text)
        fresh = mounted / "..data.new"
        fresh.symlink_to(version.name)
        fresh.replace(mounted / "..data")

    publish(1, of_workers(worker) + "queue_size: 1")
    path = mounted / "router.yaml"
    path.symlink_to("..data/router.yaml")
    with command(path, "--config-reload", "watch") as (process, port, lines):
        publish(2, of_workers(worker) + "queue_size: 2")
        said(lines, "reloaded router.yaml: queue_size 1 -> 2")
        path.unlink()
        path.write_text(of_workers(worker) + "queue_size: 3")
        said(lines, "reloaded router.yaml: queue_size 2 -> 3")
        with path.open("w") as file:
            for line in (of_workers(worker) + "queue_size: 4\n" + "# more\n" * 30).splitlines(True):
                file.write(line)
                file.flush()
                time.sleep(0.05)  # slower than a look would be
        said(lines, "reloaded router.yaml: queue_size 3 -> 4")
        path.unlink()
        said(lines, "cannot be read: No such file")
        path.write_text("queue_size: many")
        said(lines, "queue_size is many")
        assert harness.client_at(port).ask().status == 200
        assert not any("worker_urls" in line for line in lines), "it was read half"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
