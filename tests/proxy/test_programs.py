"""Programs of agents on the wire: whose request waits, what resumes it, and what becomes of it otherwise."""

import json
import re
import threading

import pytest

from tests.fakes.harness import QUIET, error_of
from tests.fakes.wire import eventually, request, response
from vllm_router import _core

PATH = "/v1/completions"
JSON = ("Content-Type", "application/json")
NO_POLLS = {"load_poll_interval_secs": 0}
TRUSTED = {"tenant_header": "x-tenant", "trusted_addresses": ["127.0.0.1"]}
# As many tokens as the prompts here are estimated to have, and 256 of the response: one fits, and two do not.
ON = "on capacity=1000"
BODY = json.dumps({"model": "m", "prompt": "word " * 400}).encode()
SMALL = b'{"model":"m","prompt":"hi"}'
ANSWER = {
    "id": "r",
    "choices": [{"index": 0, "text": "ok", "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 600, "completion_tokens": 10, "total_tokens": 610},
}


class Agentic:
    """A worker that says what its responses cost; those with x-hold come when they are told to."""

    def __init__(self, harness):
        self.lock = threading.Lock()
        self.order = []
        self.held = threading.Semaphore(0)
        self.blocks = 0  # of 100 tokens, as its metrics say
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def answer(self, connection, message):
        if message.target == "/metrics" and self.blocks:
            labels = f'num_gpu_blocks="{self.blocks}",block_size="100"'
            connection.send(response(200, f"vllm:cache_config_info{{{labels}}} 1.0\n".encode()))
            return
        if message.method != "POST":
            connection.send(response(404, b"no"))
            return
        with self.lock:
            self.order.append(message.get("x-who"))
        if message.get("x-fail"):
            connection.send(response(500, b"no"))
            return
        if message.get("x-hold"):
            assert self.held.acquire(timeout=30)
        connection.send(response(200, json.dumps(ANSWER).encode(), JSON))


def turn(harness, router, program, who=None, *fields, body=BODY):
    """A request of a program, which may wait."""
    client = harness.client(router)
    names = (JSON, ("x-session-id", program), ("x-who", who or program))
    client.send(request("POST", PATH, *names, *fields, body=body))
    return client


def served(*clients):
    for client in clients:
        assert client.read_response().status == 200


def series(router, family):
    found = re.findall(
        rf"^vllm_router_{family}(?:\{{([^}}]*)\}})? (\S+)$", router.server.metrics_text(), re.MULTILINE
    )
    return {",".join(re.findall(r'"([^"]*)"', labels)): float(value) for labels, value in found}


def states(router):
    """Programs that are reasoning, acting, waiting and paused."""
    found = series(router, "programs")
    return [int(found[name]) for name in ("reasoning", "acting", "waiting", "paused")]


def one_acts_and_one_waits(harness, router):
    served(turn(harness, router, "first"))
    eventually(lambda: states(router) == [0, 1, 0, 0])
    second = turn(harness, router, "second")
    eventually(lambda: states(router) == [0, 1, 1, 0])
    return second


@pytest.mark.parametrize("classes", ["", "class batch"], ids=["alone", "with_classes"])
def test_a_paused_program_s_request_waits_until_another_program_ends(harness, classes, written_to):
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        agentic = Agentic(harness)
        router = harness.router(
            agentic, program_admission=ON, admission_config=classes, access_log=True, **NO_POLLS
        )
        second = one_acts_and_one_waits(harness, router)
        served(turn(harness, router, "first"))  # its place is its own
        assert agentic.order == ["first", "first"]
        served(turn(harness, router, "first", "last", ("x-dynamo-session-final", "true")))
        served(second)
        eventually(lambda: stdout().count("\n") >= 4)
        lines = {line["session"]: line for line in map(json.loads, stdout().splitlines()[:4])}
    finally:
        _core.configure_log()
    assert agentic.order == ["first", "first", "last", "second"]
    went = series(router, "program_turns_total")
    assert (went["resumed"], went["active"], went["waited"]) == (1, 2, 1)
    assert series(router, "program_wait_seconds_count") == {"": 1}
    assert lines["second"]["program_wait_ms"] > 0
    assert lines["second"]["queue_ms"] >= lines["second"]["program_wait_ms"]
    assert "program_wait_ms" not in lines["first"]


def test_a_hung_program_holds_others_for_its_ttl_alone(harness):
    router = harness.router(Agentic(harness), program_admission=f"{ON} ttl_ms=300", **NO_POLLS)
    served(one_acts_and_one_waits(harness, router))
    assert series(router, "program_pauses_total")["ttl"] == 1


def test_a_request_goes_on_after_the_maximum_wait(harness):
    agentic = Agentic(harness)
    router = harness.router(agentic, program_admission=f"{ON} max_wait_ms=200", **NO_POLLS)
    first = turn(harness, router, "first", None, ("x-hold", "1"))
    eventually(lambda: agentic.order == ["first"])
    served(turn(harness, router, "second"))
    assert agentic.order == ["first", "second"]
    agentic.held.release()
    served(first)
    assert series(router, "program_turns_total")["forced"] == 1


def test_or_it_is_rejected_where_the_settings_say_so(harness):
    router = harness.router(
        Agentic(harness), program_admission=f"{ON} max_wait_ms=200 reject_after_ms=200", **NO_POLLS
    )
    answer = one_acts_and_one_waits(harness, router).read_response()
    assert (answer.status, error_of(answer)["code"]) == (429, "program_timeout")
    assert 30 <= int(answer.get("retry-after")) <= 38
    eventually(lambda: states(router) == [0, 1, 0, 0])


def test_a_client_that_leaves_makes_way_for_those_behind_it(harness):
    agentic = Agentic(harness)
    router = harness.router(agentic, program_admission=ON, **NO_POLLS)
    second = one_acts_and_one_waits(harness, router)
    third = turn(harness, router, "third", body=SMALL)  # there is room for it, but it is not its turn
    eventually(lambda: states(router) == [0, 1, 2, 0])
    second.reset()
    served(third)
    assert agentic.order == ["first", "third"]
    # It has more tokens than it said, and began last.
    eventually(lambda: states(router) == [0, 1, 0, 1])


def test_programs_stay_at_their_workers_and_leave_one_that_is_gone(harness):
    workers = [Agentic(harness), Agentic(harness)]
    router = harness.router(*workers, program_admission=ON, **NO_POLLS)
    for _ in range(3):
        served(turn(harness, router, "first"))
        served(turn(harness, router, "second"))
    orders = sorted(worker.order for worker in workers)
    assert orders == [["first"] * 3, ["second"] * 3]  # though the policy takes them in turn
    home = next(worker for worker in workers if worker.order[0] == "first")
    router.core.remove_worker(home.url)
    again = turn(harness, router, "first", "again")
    eventually(lambda: states(router)[2] == 1)  # the other worker is full
    served(turn(harness, router, "second", "last", ("x-dynamo-session-final", "true")))
    served(again)
    assert sum(series(router, "program_pauses_total").values()) == 1


def test_without_workers_nobody_waits_for_room(harness):
    agentic = Agentic(harness)
    router = harness.router(agentic, program_admission=ON, **NO_POLLS)
    second = one_acts_and_one_waits(harness, router)
    router.core.remove_worker(agentic.url)
    answer = second.read_response()
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")
    eventually(lambda: states(router) == [0, 0, 0, 1])


def test_who_waits_goes_on_when_programs_are_turned_off(harness):
    agentic = Agentic(harness)
    settings = {name: value for name, value in QUIET.items() if name in _core.Server.live_option_names}
    router = harness.router(agentic, **NO_POLLS)

    def follow(line):
        router.server.apply({**settings, **NO_POLLS, "program_admission": line}, None, 0.0, 0.0, False)

    follow(ON)
    with pytest.raises(ValueError, match='program_admission, fill is "2"; it must be'):
        follow("on fill=2")
    second = one_acts_and_one_waits(harness, router)
    third = turn(harness, router, "third")
    eventually(lambda: states(router)[2] == 2)
    follow("off")
    served(second, third, turn(harness, router, "fourth"))
    assert series(router, "program_turns_total")["passed"] == 2


@pytest.mark.parametrize(
    "line", ["on capacity=100000", f"{ON} max_wait_ms=100"], ids=["capacity", "max_wait"]
)
def test_settings_that_change_hold_for_who_waits(harness, line):
    settings = {name: value for name, value in QUIET.items() if name in _core.Server.live_option_names}
    router = harness.router(Agentic(harness), program_admission=ON, **NO_POLLS)
    second = one_acts_and_one_waits(harness, router)
    router.server.apply({**settings, **NO_POLLS, "program_admission": line}, None, 0.0, 0.0, False)
    served(second)


def test_observe_counts_what_would_wait(harness):
    agentic = Agentic(harness)
    router = harness.router(agentic, program_admission="observe capacity=1000", **NO_POLLS)
    served(turn(harness, router, "first"), turn(harness, router, "second"))
    assert series(router, "program_turns_total")["would_wait"] == 1
    eventually(lambda: states(router) == [0, 1, 0, 1])
    assert series(router, "program_pauses_total")["full"] == 1


@pytest.mark.parametrize(
    ("line", "names"),
    [("observe", ()), ("on", (("x-session-id", "p"),))],
    ids=["observe", "named_by_a_header"],
)
def test_a_body_that_need_not_be_read_is_not_held_for_its_name(harness, line, names):
    body = b'{"prompt":"' + b"x" * 1_000_000 + b'"}'
    half = len(body) // 2
    arrived = threading.Event()

    def read_halves(connection):
        connection.read_request_head()
        connection.read_exactly(half)
        arrived.set()
        connection.read_exactly(len(body) - half)
        connection.send(response(200, json.dumps(ANSWER).encode(), JSON))

    router = harness.router(harness.worker(script=read_halves), program_admission=line, **NO_POLLS)
    client = harness.client(router)
    whole = request("POST", PATH, JSON, *names, body=body)
    client.send(whole[: half - len(body)])
    assert arrived.wait(30), "the body was held until its end"
    client.send(whole[half - len(body) :])
    served(client)


def test_who_waits_stays_while_no_circuit_breaker_admits(harness):
    agentic = Agentic(harness)
    router = harness.router(
        agentic,
        program_admission=f"{ON} ttl_ms=1000 max_wait_ms=20000",
        disable_circuit_breaker=False,
        cb_failure_threshold=1,
        cb_timeout_duration_secs=1,
        **NO_POLLS,
    )
    second = one_acts_and_one_waits(harness, router)

    def has_opened():
        harness.client(router).ask("POST", PATH, JSON, ("x-fail", "1"), body=SMALL)
        return series(router, "cb_state") == {agentic.url: 1}

    eventually(has_opened)
    served(second)
    went = series(router, "program_turns_total")
    assert (went["waited"], went["passed"], went["forced"]) == (1, 0, 0)


def test_a_response_from_the_cache_costs_its_program_nothing(harness):
    agentic = Agentic(harness)
    router = harness.router(
        agentic, program_admission=ON, response_cache=True, response_cache_routes=[PATH], **NO_POLLS
    )
    body = json.dumps({"model": "m", "prompt": "word " * 400, "temperature": 0}).encode()
    served(turn(harness, router, "first", body=body))
    router.must_rest()
    served(turn(harness, router, "second", body=body))
    assert agentic.order == ["first"]
    assert sum(series(router, "program_turns_total").values()) == 1


def test_a_program_is_its_tenant_s_and_a_request_without_a_name_is_none(harness):
    router = harness.router(Agentic(harness), program_admission="on capacity=100000", **NO_POLLS, **TRUSTED)
    served(*(turn(harness, router, "one", None, ("x-tenant", tenant)) for tenant in ("a", "b", "a")))
    eventually(lambda: states(router) == [0, 2, 0, 0])
    served(turn(harness, router, "one", None, ("x-tenant", "a"), ("x-claude-code-agent-id", "sub")))
    eventually(lambda: states(router) == [0, 3, 0, 0])
    client = harness.client(router)
    assert client.ask("POST", PATH, JSON, body=BODY).status == 200
    for context in ({"program_id": "p"}, json.dumps({"program_id": "p"})):
        body = json.dumps({"model": "m", "prompt": "hi", "vllm_xargs": {"agentic_context": context}})
        assert client.ask("POST", PATH, JSON, body=body.encode()).status == 200
    eventually(lambda: states(router) == [0, 4, 0, 0])


def test_a_worker_tells_its_capacity_and_the_pages_have_it(harness):
    agentic = Agentic(harness)
    agentic.blocks = 10
    router = harness.router(agentic, program_admission="on", **NO_POLLS)
    served(turn(harness, router, "first"))

    def page(path="/admin/admission"):
        return json.loads(harness.client(router).ask("GET", path).body)

    eventually(lambda: page()["programs"]["workers"][0]["capacity"] == 1000)
    programs = page()["programs"]
    assert (programs["mode"], programs["acting"], programs["waiting"]) == ("on", 1, 0)
    assert programs["workers"] == [
        {"worker": agentic.url, "capacity": 1000, "tokens": 610, "active": 1, "acting": 1}
    ]
    assert page("/scheduling/diagnostics") == {**programs, "enabled": True}
    assert series(router, "program_working_set_ratio") == {agentic.url: 0.61}
    second = turn(harness, router, "second")
    eventually(lambda: states(router) == [0, 1, 1, 0])
    served(turn(harness, router, "first", None, ("x-dynamo-session-final", "true")))
    served(second)


def test_off_is_as_without_it(harness):
    router = harness.router(Agentic(harness), **NO_POLLS)
    served(turn(harness, router, "first"), turn(harness, router, "second"))
    assert states(router) == [0, 0, 0, 0]
    assert not any(series(router, "program_turns_total").values())
    assert harness.client(router).ask("GET", "/scheduling/diagnostics").status == 404
    assert json.loads(harness.client(router).ask("GET", "/admin/admission").body) == {"enabled": False}
