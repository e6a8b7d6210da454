"""cpp/proxy/control/load_poller.h: what policies see of other routers' requests, for each kind of worker."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.redis_server import RedisServer
from tests.fakes.wire import eventually, request, response
from tests.proxy.test_peer_sync import forged, open_router, publish

OFTEN = {"load_poll_interval_secs": 0.05}


class Says:
    """A worker with these answers; everything else is hello, and what it lacks is 404."""

    def __init__(self, **places):
        self.places = {f"/{name}": body for name, body in places.items()}
        self.asked = []

    def __call__(self, connection, message):
        if message.target in ("/metrics", "/get_load", "/load"):
            self.asked.append(message.target)
            body = self.places.get(message.target)
            if callable(body):
                body = body(connection)
            connection.send(response(404, b"{}") if body is None else response(200, body.encode()))
        else:
            connection.send(response(200, b"hello"))


def vllm(running, waiting):
    name = "vllm:num_requests"
    return f'{name}_running{{engine="0"}} {running}\n{name}_waiting{{engine="0"}} {waiting}\n'


def sglang(running, waiting):
    return f"sglang:num_running_reqs {running}\nsglang:num_queue_reqs {waiting}\n"


def metrics(router, name):
    found = {}
    for line in router.server.metrics_text().splitlines():
        if line.startswith(f"vllm_router_{name}{{"):
            series, value = line.rsplit(" ", 1)
            found[series.split('"')[1]] = float(value)
    return found


def wait_for_remote(router, worker, requests):
    eventually(
        lambda: metrics(router, "remote_requests").get(worker.url) == requests,
        f"never {requests} remote requests",
    )


FLAVOURS = {
    "vllm metrics": Says(metrics=vllm(5, 2)),
    "sglang metrics": Says(metrics=sglang(4, 3)),
    "sglang get_load": Says(metrics="python_info 1\n", get_load='{"load": 7}'),
    "vllm load": Says(load='{"server_load": 7}'),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_others_send_counts_for_policies(harness, flavour):
    says = FLAVOURS[flavour]
    busy, idle = harness.worker(says), harness.worker()
    router = harness.router(busy, idle, policy="least_load", **OFTEN)
    wait_for_remote(router, busy, 7)
    client = harness.client(router)
    for _ in range(4):
        client.ask("POST", "/v1/completions", body=b"{}")
    eventually(lambda: metrics(router, "processed_requests_total") == {busy.url: 0, idle.url: 4})
    waiting = {"vllm metrics": 2, "sglang metrics": 3}.get(flavour, 0)  # the others do not tell
    assert metrics(router, "remote_waiting_requests") == {busy.url: waiting, idle.url: 0}
    assert metrics(router, "worker_load")[busy.url] == 7
    assert metrics(router, "load_polls_total")["ok"] > 0
    assert router.loads() == [0, 0]  # the tickets' own counters are nobody else's
    # From the second time on it is asked only where it answered.
    place = {"sglang get_load": "/get_load", "vllm load": "/load"}.get(flavour, "/metrics")
    eventually(lambda: says.asked[-3:] == [place] * 3)


def test_own_requests_are_not_counted_twice(harness):
    gate = None

    def answer(connection, message):
        if message.method == "POST":
            gate.wait()
        says(connection, message)

    says = Says(metrics=vllm(1, 2))
    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, **OFTEN)
    wait_for_remote(router, worker, 3)
    clients = [harness.client(router) for _ in range(2)]
    for client in clients:
        client.send(request("POST", "/v1/completions", body=b"{}"))
    router.wait_for_load(2)
    wait_for_remote(router, worker, 1)  # 3 in all, 2 of them ours
    assert metrics(router, "worker_load")[worker.url] == 3
    assert metrics(router, "waiting_requests")[worker.url] == 2
    assert metrics(router, "remote_waiting_requests")[worker.url] <= 1
    gate.open()
    for client in clients:
        assert client.read_response().status == 200


def test_what_is_not_heard_any_more_is_forgotten(harness):
    says = Says(metrics=vllm(9, 0))
    worker = harness.worker(says)
    router = harness.router(worker, **OFTEN)
    wait_for_remote(router, worker, 9)
    worker.stop_listening()
    wait_for_remote(router, worker, 0)
    assert metrics(router, "load_polls_total")["failed"] >= 3


@pytest.mark.parametrize("text", ["vllm:num_requests_running -1\n", "\0" * 100, "[]", vllm("NaN", 1)])
def test_nonsense_is_no_load(harness, text):
    says = Says(metrics=text, get_load=text, load=text)
    worker = harness.worker(says)
    router = harness.router(worker, **OFTEN)
    eventually(lambda: metrics(router, "load_polls_total")["failed"] > 0)
    assert metrics(router, "remote_requests") == {worker.url: 0}


def test_ranks_have_loads_of_their_own(harness):
    text = vllm(5, 2) + 'vllm:num_requests_running{engine="1"} 1\nvllm:num_requests_waiting{engine="1"} 0\n'
    worker = harness.worker(Says(metrics=text))
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", **OFTEN)
    eventually(lambda: list(metrics(router, "remote_requests").values()) == [7, 1])


def test_nobody_is_asked_unless_told_to(harness):
    for options in ({}, {"load_poll_interval_secs": 0}):
        says = Says(metrics=vllm(1, 1))
        worker = harness.worker(says)
        router = harness.router(worker, policy="least_load", worker_startup_check_interval=0.01, **options)
        for _ in range(20):
            harness.client(router).ask("GET", "/x")
        assert says.asked == []


def test_power_of_two_asks_as_often_as_it_looks_at_new_workers(harness):
    worker = harness.worker(Says(metrics=vllm(1, 1)))
    router = harness.router(worker, policy="power_of_two", worker_startup_check_interval=0.05)
    wait_for_remote(router, worker, 2)


def test_get_loads_asks_the_workers_themselves(harness):
    says, silent = Says(get_load='{"load": 4}'), Says()
    workers = [harness.worker(Says(metrics=vllm(3, 2))), harness.worker(says), harness.worker(silent)]
    gone = harness.refusing_port()
    router = harness.router(*workers, gone)
    answer = harness.client(router).ask("GET", "/get_loads")
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "workers": [
            {"worker": workers[0].url, "load": 5},
            {"worker": workers[1].url, "load": 4},
            {"worker": workers[2].url, "load": -1},
            {"worker": gone.url, "load": -1},
        ]
    }
    assert silent.asked == ["/metrics", "/get_load", "/load"]


def test_get_loads_of_stages_names_the_stage_of_each(harness):
    prefill, decode = harness.worker(Says(metrics=vllm(3, 2))), harness.worker(Says(get_load='{"load": 4}'))
    gone = harness.refusing_port()
    router = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [decode.url, gone.url]},
    )
    answer = harness.client(router).ask("GET", "/get_loads")
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "workers": [
            {"worker": prefill.url, "load": 5, "worker_type": "prefill"},
            {"worker": decode.url, "load": 4, "worker_type": "decode"},
            {"worker": gone.url, "load": -1, "worker_type": "decode"},
        ],
        "loads": {f"prefill_{prefill.url}": 5, f"decode_{decode.url}": 4},
        "errors": [f"Failed to get load from decode {gone.url}"],
    }


def test_get_loads_of_stages_without_workers(harness):
    router = harness.router(routing={"vllm_pd_disaggregation": True})
    answer = harness.client(router).ask("GET", "/get_loads")
    assert json.loads(answer.body) == {"workers": [], "loads": {}, "errors": []}


def test_get_loads_of_nobody(harness):
    answer = harness.client(harness.router()).ask("GET", "/get_loads")
    assert json.loads(answer.body) == {"workers": []}


def test_a_router_that_hears_no_others_polls_until_it_does(harness, tmp_path):
    busy = harness.worker(Says(metrics=vllm(5, 2)))
    with RedisServer(tmp_path) as redis:
        router = open_router(harness, [busy], redis, policy="least_load", load_poll_interval_secs=0)
        eventually(lambda: metrics_value(router, "vllm_router_peer_sync_up") == 1)
        assert metrics(router, "remote_requests") == {busy.url: 0}
        redis.kill()
        wait_for_remote(router, busy, 7)
        assert metrics_value(router, "vllm_router_peer_sync_alone") == 1
        redis.start()
        wait_for_remote(router, busy, 0)  # what was polled is of the past
        assert metrics_value(router, "vllm_router_peer_sync_alone") == 0
        polls = metrics(router, "load_polls_total")["ok"]
        rounds = rounds_of(router)
        eventually(lambda: rounds_of(router) > rounds + 30)
        assert metrics(router, "load_polls_total")["ok"] == polls


def test_a_class_waits_for_the_queue_of_an_engine_and_not_for_prompts_of_peers(harness, tmp_path):
    queue = {"length": 0}
    worker = harness.worker(Says(metrics=lambda _: vllm(1000, queue["length"])))
    with RedisServer(tmp_path) as redis:
        rules = "class default queue_size=0"
        router = open_router(harness, [worker], redis, policy="least_load", admission_config=rules, **OFTEN)
        wait_for_remote(router, worker, 1000)  # by a poll
        publish(redis, forged([worker]))
        eventually(lambda: metrics(router, "remote_waiting_requests") == {worker.url: 1000})
        client = harness.client(router)
        ask = lambda: client.ask("POST", "/v1/completions", body=b"{}").status  # noqa: E731
        assert ask() == 200
        queue["length"] = 3
        eventually(lambda: ask() == 429)


def metrics_value(router, name):
    return parse(router.server.metrics_text())[name].value()


def rounds_of(router):
    return metrics(router, "peer_sync_rounds_total")["ok"]


def with_cache(running, waiting, use):
    return vllm(running, waiting) + f'vllm:kv_cache_usage_perc{{engine="0"}} {use}\n'


SMALL = {"load_poll_interval_secs": 0.02}


def overloaded(router, worker):
    return metrics(router, "worker_overloaded")[worker.url] == 1


def served_by(router, harness, workers, count=12, **fields):
    """How many of `count` requests each worker gets."""
    before = [len(worker.posts) for worker in workers]
    client = harness.client(router)
    for i in range(count):
        body = json.dumps({"model": "m", "prompt": f"prompt {i}", **fields}).encode()
        client.send(request("POST", "/v1/completions", body=body))
        assert client.read_response().status == 200
    return [len(worker.posts) - one for worker, one in zip(workers, before, strict=True)]


@pytest.mark.parametrize(
    "limits", [{"exclude_waiting_above": 4}, {"exclude_kv_above": 0.8}], ids=["queue", "cache"]
)
@pytest.mark.parametrize(
    "policy", ["round_robin", "random", "consistent_hash", "least_load", "cache_aware", "auto"]
)
def test_an_overloaded_worker_is_passed_over_under_every_policy(harness, policy, limits):
    full, free = (
        harness.worker(Says(metrics=with_cache(3, 9, 0.97))),
        harness.worker(Says(metrics=with_cache(0, 0, 0.1))),
    )
    router = harness.router(full, free, policy=policy, **limits, **SMALL)
    eventually(lambda: overloaded(router, full))
    assert served_by(router, harness, [full, free]) == [0, 12]
    assert not overloaded(router, free)


def test_a_session_is_at_home_again_when_its_worker_has_room(harness):
    says = {}
    workers = []
    for i in range(2):
        says[i] = with_cache(0, 0, 0.1)
        workers.append(harness.worker(Says(metrics=lambda _, i=i: says[i])))
    router = harness.router(*workers, policy="consistent_hash", exclude_waiting_above=4, **SMALL)
    home = served_by(router, harness, workers, user="ann").index(12)
    says[home] = with_cache(0, 9, 0.1)
    eventually(lambda: overloaded(router, workers[home]))
    assert served_by(router, harness, workers, user="ann")[home] == 0
    says[home] = with_cache(0, 3, 0.1)
    eventually(lambda: not overloaded(router, workers[home]))
    assert served_by(router, harness, workers, user="ann")[home] == 12


def test_where_all_are_overloaded_all_serve(harness):
    workers = [harness.worker(Says(metrics=with_cache(3, 9, 0.97))) for _ in range(2)]
    router = harness.router(*workers, policy="round_robin", exclude_waiting_above=4, **SMALL)
    eventually(lambda: all(overloaded(router, worker) for worker in workers))
    assert served_by(router, harness, workers) == [6, 6]


def test_a_retry_goes_to_an_overloaded_worker_where_no_other_is_left(harness):
    def fails(connection, message):
        if message.target == "/metrics":
            connection.send(response(200, with_cache(0, 0, 0.1).encode()))
        else:
            connection.send(response(503, b"{}"))

    full, failing = harness.worker(Says(metrics=with_cache(3, 9, 0.97))), harness.worker(fails)
    router = harness.router(
        full,
        failing,
        policy="round_robin",
        exclude_waiting_above=4,
        disable_retries=False,
        retry_initial_backoff_ms=1,
        **SMALL,
    )
    eventually(lambda: overloaded(router, full))
    assert served_by(router, harness, [full, failing], 4) == [4, 4]


def test_a_worker_that_tells_no_more_is_not_passed_over(harness):
    """After three polls."""
    silent = []

    def says(_connection):
        return None if silent else with_cache(3, 9, 0.97)

    full, free = harness.worker(Says(metrics=says)), harness.worker(Says(metrics=with_cache(0, 0, 0.1)))
    router = harness.router(full, free, policy="round_robin", exclude_waiting_above=4, **SMALL)
    eventually(lambda: overloaded(router, full))
    silent.append(True)
    eventually(lambda: not overloaded(router, full))
    assert served_by(router, harness, [full, free]) == [6, 6]


def test_workers_are_polled_where_the_settings_need_it(harness):
    worker = harness.worker(Says(metrics=with_cache(3, 9, 0.97)))
    router = harness.router(worker, policy="round_robin", exclude_kv_above=0.5)
    eventually(lambda: overloaded(router, worker))
