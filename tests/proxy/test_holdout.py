"""Conversations that are held out: the baseline chooses their workers, and the policy learns of them."""

import contextlib
import json

import pytest

from tests.fakes.held_out import PERCENT, secret_file, session, sessions
from tests.fakes.wire import eventually, request, response
from vllm_router.testing import SimulatedWorker

COMPLETIONS = "/v1/completions"
PROMPT = "the permission users. offer, developers license " * 20


@pytest.fixture
def held_out(tmp_path):
    return {
        "holdout_percent": PERCENT,
        "holdout_secret_file": secret_file(tmp_path),
        "decision_headers": True,
    }


def ask(client, name, prompt="a"):
    body = json.dumps({"model": "simulated-model", "prompt": prompt, "max_tokens": 4}).encode()
    return client.ask("POST", COMPLETIONS, ("x-session-id", name), body=body)


def receipts_of(client, query=""):
    return json.loads(client.ask("GET", f"/admin/receipts{query}").body)["receipts"]


def test_the_baseline_chooses_and_the_policy_does_for_others(harness, held_out):
    workers = [harness.worker() for _ in range(2)]
    router = harness.router(*workers, policy="consistent_hash", **held_out)
    client = harness.client(router)
    names = sessions("policy")
    owners = {}
    while len(set(owners.values())) < 2:
        name = next(names)
        got = ask(client, name)
        assert got.get("x-vllm-router-arm") == "policy"
        assert got.get("x-vllm-router-reason") == "session_hash"
        owners[name] = got.get("x-vllm-router-worker")
    held = session("holdout")
    got = ask(client, held)
    assert (got.get("x-vllm-router-arm"), got.get("x-vllm-router-reason")) == ("holdout", "holdout")
    eventually(lambda: len(receipts_of(client, "?arm=holdout")) == 1)
    (receipt,) = receipts_of(client, "?arm=holdout")
    assert (receipt["arm"], receipt["reason"], receipt["policy"]) == ("holdout", "holdout", "consistent_hash")
    assert {row["arm"] for row in receipts_of(client, "?arm=policy")} == {"policy"}
    router.must_rest()


def test_a_held_out_request_goes_to_the_worker_with_the_lowest_load(harness, held_out):
    release = []

    def hold(connection, message):
        if message.target == "/held":
            release.append(connection)
            connection.ending()
        else:
            connection.send(response(200, b"{}"))

    workers = [harness.worker(hold) for _ in range(2)]
    router = harness.router(*workers, policy="consistent_hash", **held_out)
    client = harness.client(router)
    name = session("holdout")
    busy = harness.client(router)
    busy.send(request("GET", "/held", ("x-session-id", name)))
    eventually(lambda: len(release) == 1)
    (loaded_url,) = [url for url, load in zip([w.url for w in workers], router.loads(), strict=True) if load]
    for _ in range(5):
        assert ask(client, name).get("x-vllm-router-worker") != loaded_url
    busy.close()
    router.wait_for_load(0)


@pytest.mark.parametrize("policy", ["auto", "cache_aware", "kv_logit"])
def test_the_policy_learns_what_the_worker_has(harness, held_out, policy):
    with contextlib.ExitStack() as stack, harness.keeping_descriptors():
        worker = stack.enter_context(SimulatedWorker(engine="instant", cache_blocks=1 << 12))
        client = harness.client(harness.router(worker.url, policy=policy, **held_out))
        for _ in range(2):
            assert ask(client, session("holdout"), PROMPT).status == 200
        eventually(lambda: len(receipts_of(client)) == 2)
        second, first = receipts_of(client)
        assert (first["predicted_cached_tokens"], first["arm"]) == (0, "holdout")
        assert second["predicted_cached_tokens"] > 100
        assert second["reason"] == "holdout"


def test_a_retry_goes_to_the_baseline_again(harness, held_out):
    failing = harness.worker(lambda connection, _: connection.send(response(503, b"busy")))
    healthy = harness.worker()
    router = harness.router(
        failing,
        healthy,
        policy="consistent_hash",
        disable_retries=False,
        retry_initial_backoff_ms=1,
        disable_circuit_breaker=True,
        **held_out,
    )
    client = harness.client(router)
    names = sessions("holdout")
    for _ in range(20):
        got = ask(client, next(names))
        assert got.status == 200
        assert (got.get("x-vllm-router-arm"), got.get("x-vllm-router-reason")) == ("holdout", "holdout")
        if got.get("x-vllm-router-attempts") == "2":
            break
    assert got.get("x-vllm-router-attempts") == "2"
    router.must_rest()


def test_a_conversation_keeps_its_arm_over_turns_restarts_and_routers(harness, held_out):
    worker = harness.worker()
    some = [session("policy"), session("holdout")]
    routers = [harness.router(worker, **held_out) for _ in range(2)]
    for router in routers:
        client = harness.client(router)
        for _ in range(3):
            assert [ask(client, name).get("x-vllm-router-arm") for name in some] == ["policy", "holdout"]
    routers[0].shutdown()
    routers[0].must_end()
    again = harness.client(harness.router(worker, **held_out))
    assert [ask(again, name).get("x-vllm-router-arm") for name in some] == ["policy", "holdout"]


def test_a_chat_without_a_name_keeps_its_arm(harness, held_out):
    client = harness.client(harness.router(harness.worker(), **held_out))
    arms = []
    for number in range(30):
        opening = [{"role": "user", "content": f"Hello {number}"}]
        later = [*opening, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Bye"}]
        said = [
            client.ask("POST", "/v1/chat/completions", body=json.dumps({"messages": turns}).encode()).get(
                "x-vllm-router-arm"
            )
            for turns in (opening, later)
        ]
        assert said[0] == said[1]
        arms.append(said[0])
    assert set(arms) == {"policy", "holdout"}


def test_requests_without_a_conversation_and_the_routers_own_have_no_arm(harness, held_out):
    client = harness.client(harness.router(harness.worker(), **held_out))
    assert client.ask("POST", COMPLETIONS, body=b"{}").get("x-vllm-router-arm") is None
    assert client.ask("GET", "/x", ("x-session-id", session("holdout"))).get("x-vllm-router-arm") is None


def test_off_nothing_has_an_arm(harness):
    client = harness.client(harness.router(harness.worker(), decision_headers=True))
    assert ask(client, "s").get("x-vllm-router-arm") is None
    eventually(lambda: len(receipts_of(client)) == 1)
    assert receipts_of(client)[0]["arm"] == "policy"
    assert receipts_of(client, "?arm=holdout") == []
