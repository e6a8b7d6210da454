"""A fleet of prefill and decode workers, as its admin endpoints, readiness and metrics show it."""

import json

import pytest

from tests.fakes.prometheus_text import parse


def get_json(client, path):
    answer = client.ask("GET", path)
    return answer.status, json.loads(answer.body)


def staged(harness, prefill, decode, **options):
    urls = {"prefill_urls": [(worker.url, 8998) for worker in prefill]}
    urls["decode_urls"] = [worker.url for worker in decode]
    return harness.router(routing=urls, **options)


def post_worker(client, **members):
    answer = client.ask("POST", "/workers", body=json.dumps(members).encode())
    return answer.status, json.loads(answer.body)


def test_lists_of_workers_tell_the_stage_of_each(harness):
    prefill, decode = harness.worker(), harness.worker()
    client = harness.client(staged(harness, [prefill], [decode]))
    status, listed = get_json(client, "/workers")
    assert (status, listed["total"]) == (200, 2)
    assert listed["stats"] == {"prefill_count": 1, "decode_count": 1, "regular_count": 0}
    assert [worker["worker_type"] for worker in listed["workers"]] == ["prefill", "decode"]
    assert [worker.get("bootstrap_port") for worker in listed["workers"]] == [8998, None]
    assert get_json(client, f"/workers/{decode.url}")[1]["worker_type"] == "decode"


def test_a_worker_of_a_stage_is_added_by_its_type(harness):
    router = staged(harness, [harness.worker()], [])
    client, added = harness.client(router), harness.worker()
    status, body = post_worker(client, url=added.url, worker_type="decode")
    assert (status, body["success"]) == (200, True)
    assert [worker.worker_type for worker in router.core.workers] == ["prefill", "decode"]
    other = harness.worker()
    assert post_worker(client, url=other.url, worker_type="prefill", bootstrap_port=9000)[0] == 200
    assert get_json(client, f"/workers/{other.url}")[1]["bootstrap_port"] == 9000


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({}, "has no stage"),
        ({"worker_type": "regular"}, "has no stage"),
        ({"worker_type": "encode"}, "'worker_type' must be one of regular, prefill, decode"),
        ({"worker_type": 7}, "'worker_type' must be one of regular, prefill, decode"),
        ({"worker_type": "prefill", "bootstrap_port": 0}, "'bootstrap_port' must be a whole number between"),
        ({"worker_type": "prefill", "bootstrap_port": 65536}, "'bootstrap_port' must be a whole number"),
    ],
)
def test_a_worker_without_a_stage_is_rejected_at_once(harness, members, sentence):
    worker = harness.worker()
    client = harness.client(staged(harness, [harness.worker()], [harness.worker()]))
    status, body = post_worker(client, url=worker.url, **members)
    assert (status, body["code"]) == (400, "ADD_WORKER_FAILED")
    assert sentence in body["error"]
    assert worker.requests == []


def test_a_fleet_without_stages_rejects_a_worker_of_one(harness):
    client = harness.client(harness.router(harness.worker()))
    status, body = post_worker(client, url=harness.worker().url, worker_type="prefill")
    assert status == 400
    assert "this fleet has no stages" in body["error"]


def test_add_worker_names_no_stage(harness):
    client = harness.client(staged(harness, [harness.worker()], [harness.worker()]))
    answer = client.ask("POST", f"/add_worker?url={harness.worker().url}")
    assert answer.status == 400
    assert answer.body == b"PD router requires specific add_prefill_server or add_decode_server methods"


def test_readiness_needs_a_worker_of_each_stage(harness):
    prefill, decode = harness.worker(), harness.worker()
    router = staged(harness, [prefill], [decode])
    client = harness.client(router)
    one = {"healthy": 1, "total": 1}
    assert get_json(client, "/readiness") == (200, {"status": "ready", "prefill": one, "decode": one})
    assert client.ask("GET", "/health").status == 200
    router.core.set_healthy(decode.url, False)
    assert get_json(client, "/readiness") == (
        503,
        {
            "status": "not_ready",
            "prefill": one,
            "decode": {"healthy": 0, "total": 1},
            "reason": "No workers available: 1 prefill, 0 decode",
        },
    )
    assert client.ask("GET", "/health").status == 503
    router.core.set_healthy(decode.url, True)
    router.core.drain_worker(prefill.url)
    assert get_json(client, "/readiness")[0] == 503


def test_metrics_have_the_stage_of_each_worker(harness):
    prefill, decode = harness.worker(), harness.worker()
    router = staged(harness, [prefill], [decode])
    info = parse(router.server.metrics_text())["vllm_router_worker_info"]
    assert info.value(worker=prefill.url, worker_type="prefill") == 1
    assert info.value(worker=decode.url, worker_type="decode") == 1
