"""Requests that need no prefill worker (cpp/routing/pd_bypass.h), before simulated stages and fakes."""

import contextlib
import json
import re
import threading
from typing import Any

import pytest

from tests.fakes.models import ModelWorker, wait_until_all_listed
from tests.fakes.pd import WHOLE
from tests.fakes.wire import response
from tests.proxy.test_pd import COMPLETIONS, MODEL, ON, labelled, post, text
from vllm_router.testing import SimulatedWorker

PROMPT = "the permission users. offer, developers license " * 20
MORE = " called clearly of personal the covered"
SHORT = "Hello, decode!"


def bypassing(harness, prefill, decode, uncached=64, routing=None, **options: Any):
    """A router that lets prompts with so few tokens to compute bypass prefill."""
    urls = {
        "prefill_urls": [worker.url for worker in prefill],
        "decode_urls": [worker.url for worker in decode],
        "pd_bypass_uncached_tokens": uncached,
    }
    return harness.router(
        routing=urls | (routing or {}), decision_headers=True, prometheus_port=0, **{**ON, **options}
    )


def completion(prompt=PROMPT, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 8, **more}


def plan_of(message) -> str:
    assert message.status == 200, message.body
    return message.get("x-vllm-router-pd")


def prefill_worker(harness):
    return harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))


def bodies(worker) -> list[dict[str, Any]]:
    return [json.loads(message.body) for message in worker.posts]


@pytest.fixture
def fakes(harness):
    """A prefill worker and two decode workers, and a router that balances decode by load."""
    prefill, decodes = prefill_worker(harness), [harness.worker(), harness.worker()]
    return prefill, decodes, bypassing(harness, [prefill], decodes, routing={"decode_policy": "least_load"})


def holder_of(decodes, client, prompt=PROMPT):
    """The decode worker that got a prompt in two stages, and the other one."""
    assert plan_of(post(client, completion(prompt))) == "two_stages"
    return (decodes[0], decodes[1]) if decodes[0].posts else (decodes[1], decodes[0])


# ---- turns of a conversation


def test_the_second_turn_bypasses_prefill_and_says_the_same(harness):
    with contextlib.ExitStack() as stack:

        def simulated(**options: Any) -> SimulatedWorker:
            with harness.keeping_descriptors():
                return stack.enter_context(SimulatedWorker(engine="instant", cache_blocks=256, **options))

        prefill, decode, single = simulated(stage="prefill"), simulated(stage="decode"), simulated()
        router = bypassing(harness, [prefill], [decode])
        client, alone = harness.client(router), harness.client(harness.router(single))
        assert plan_of(post(client, completion())) == "two_stages"
        second = post(client, completion(PROMPT + MORE))
        assert plan_of(second) == "bypass"
        assert second.get("x-vllm-router-worker") == decode.url
        assert text(second) == text(post(alone, completion(PROMPT + MORE)))
        assert len(prefill.captured()) == 1
        router.must_rest()
        assert labelled(router, "pd_local_total", "reason") == {"bypass": 1}
        assert labelled(router, "pd_plan_total", "kind") == {"two_stages": 1, "local": 1}
        [saved] = re.findall(
            r"^vllm_router_pd_bypass_saved_tokens_total (\d+)", router.server.metrics_text(), re.MULTILINE
        )
        assert 100 < int(saved) < 400


def test_what_is_not_held_takes_two_stages(fakes, harness):
    _, decodes, router = fakes
    client = harness.client(router)
    holder_of(decodes, client)
    assert plan_of(post(client, completion(PROMPT[64:]))) == "two_stages"
    assert plan_of(post(client, completion(PROMPT + MORE * 20))) == "two_stages"
    assert plan_of(post(client, completion(PROMPT + MORE))) == "bypass"


@pytest.mark.parametrize("stream", [False, True])
def test_the_worker_gets_the_clients_body_without_members_that_steer_transfers(fakes, harness, stream):
    prefill, decodes, router = fakes
    client = harness.client(router)
    sent = completion(SHORT, stream=stream, kv_transfer_params={"remote_host": "10.0.0.9"}, seed=7)
    assert plan_of(post(client, sent)) == "bypass"
    [got] = bodies(decodes[0]) + bodies(decodes[1])
    assert got == {name: value for name, value in sent.items() if name != "kv_transfer_params"}
    assert prefill.posts == []
    router.must_rest()


def test_without_the_setting_nothing_bypasses(harness):
    prefill, decode = prefill_worker(harness), harness.worker()
    client = harness.client(bypassing(harness, [prefill], [decode], uncached=0))
    assert [plan_of(post(client, completion(SHORT))) for _ in range(3)] == ["two_stages"] * 3


# ---- who may not


def test_behind_a_full_queue_there_are_two_stages(harness):
    held, free = threading.Event(), threading.Event()

    def hold(connection, message):
        if message.method == "POST" and b"kv_transfer_params" not in message.body:
            held.set()
            assert free.wait(30)
        connection.send(response(200, b"hello"))

    prefill, decode = prefill_worker(harness), harness.worker(hold)
    router = bypassing(harness, [prefill], [decode], uncached=100, routing={"pd_bypass_queued_tokens": 64})
    words = "word " * 48  # 60 tokens
    first, second = harness.client(router), harness.client(router)
    body = json.dumps(completion(words)).encode()
    thread = threading.Thread(target=lambda: first.ask("POST", COMPLETIONS, body=body))
    thread.start()
    assert held.wait(10)
    for _ in range(5):  # whoever repeats short prompts gets no more of decode than that
        assert plan_of(post(second, completion(words))) == "two_stages"
    free.set()
    thread.join(10)
    router.must_rest()
    assert plan_of(post(second, completion(words))) == "bypass"


def test_a_worker_with_all_its_requests_gets_no_more(harness):
    held, free = threading.Event(), threading.Event()

    def hold(connection, message):
        if message.method == "POST" and json.loads(message.body).get("hold"):
            held.set()
            assert free.wait(30)
        connection.send(response(200, b"hello"))

    prefill, decodes = prefill_worker(harness), [harness.worker(hold), harness.worker(hold)]
    router = bypassing(harness, [prefill], decodes, routing={"max_worker_requests": 1})
    client, other = harness.client(router), harness.client(router)
    holder, idle = holder_of(decodes, client)
    body = json.dumps(completion(hold=1)).encode()
    thread = threading.Thread(target=lambda: other.ask("POST", COMPLETIONS, body=body))
    thread.start()
    assert held.wait(10)
    assert "kv_transfer_params" not in bodies(holder)[-1]  # it bypassed, and is the holder's one request
    assert plan_of(post(client, completion(PROMPT + MORE * 3))) == "two_stages"
    assert len(idle.posts) == 1
    free.set()
    thread.join(10)
    router.must_rest()


def test_a_worker_that_left_and_came_back_holds_nothing(fakes, harness):
    _, decodes, router = fakes
    client = harness.client(router)
    holder, _ = holder_of(decodes, client)
    router.core.remove_worker(holder.url)
    assert plan_of(post(client, completion(PROMPT + MORE))) == "two_stages"
    router.core.add_worker(holder.url, worker_type="decode")
    before = len(holder.posts)
    message = post(client, completion(PROMPT + MORE))
    assert plan_of(message) == "bypass"  # at the other one, which has fetched the blocks meanwhile
    assert len(holder.posts) == before


def test_emptied_caches_hold_nothing(fakes, harness):
    _, decodes, router = fakes
    client = harness.client(router)
    holder_of(decodes, client)
    assert client.ask("POST", "/reset_prefix_cache", body=b"").status == 200
    assert plan_of(post(client, completion(PROMPT + MORE))) == "two_stages"


def test_a_draining_holder_is_not_chosen(fakes, harness):
    _, decodes, router = fakes
    client = harness.client(router)
    holder, idle = holder_of(decodes, client)
    router.core.drain_worker(holder.url)
    message = post(client, completion(PROMPT + MORE))
    assert (plan_of(message), message.get("x-vllm-router-worker")) == ("two_stages", idle.url)


def test_a_short_prompt_goes_to_a_worker_of_its_model(harness):
    prefill = ModelWorker(harness, "a", "b")
    decodes = [ModelWorker(harness, "a"), ModelWorker(harness, "b")]
    router = bypassing(harness, [prefill], decodes, model_refresh_secs=3600)
    client = harness.client(router)
    wait_until_all_listed(router, prefill, *decodes)
    for name in "abbab":
        assert plan_of(post(client, completion(SHORT) | {"model": name})) == "bypass"
    assert [worker.wrong for worker in decodes] == [[], []]
    assert prefill.served == []


# ---- failures


@pytest.mark.parametrize("status", [500, 429])
def test_a_bypass_that_fails_becomes_two_stages_elsewhere(harness, status):
    def fail(connection, message):
        alone = b"kv_transfer_params" not in message.body
        connection.send(response(status, b"no") if alone else response(200, b"hello"))

    prefill, decodes = prefill_worker(harness), [harness.worker(fail), harness.worker(fail)]
    router = bypassing(harness, [prefill], decodes)
    message = post(harness.client(router), completion(SHORT))
    assert (plan_of(message), message.body) == ("two_stages", b"hello")
    assert [len(worker.posts) for worker in (prefill, *decodes)] == [1, 1, 1]
    router.must_rest()
    assert labelled(router, "pd_local_total", "reason") == {}


def test_a_request_that_may_have_ended_its_decode_worker_gets_no_blocks(harness):
    lost = []

    def reset(connection, message):
        if message.method == "POST" and not lost:
            lost.append(message)
            connection.reset()
        else:
            connection.send(response(200, b"hello"))

    prefill, decodes = prefill_worker(harness), [harness.worker(reset), harness.worker(reset)]
    router = bypassing(harness, [prefill], decodes)
    assert post(harness.client(router), completion(SHORT)).body == b"hello"
    assert prefill.posts == []
    assert all("kv_transfer_params" not in body for worker in decodes for body in bodies(worker))


def test_an_sglang_fleet_does_not_start(harness):
    prefill, decode = harness.worker(), harness.worker()
    with pytest.raises(ValueError, match="whose decode workers cannot prefill by themselves"):
        bypassing(harness, [prefill], [decode], kv_connector="sglang")
