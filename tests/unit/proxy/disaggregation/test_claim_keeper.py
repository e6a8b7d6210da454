"""cpp/proxy/disaggregation/claim_keeper.h: blocks at prefill that no decode worker will fetch."""

import json
import re
import threading

import pytest

from tests.fakes.pd import PARAMETERS, WHOLE
from tests.fakes.wire import eventually, response


def ends(router):
    return re.findall(r'pd_claims_total\{end="(\w+)"\} 1', router.server.metrics_text())


def claims(router):
    """How many have ended in each way."""
    found = re.findall(r'pd_claims_total\{end="(\w+)"\} (\d+)', router.server.metrics_text())
    return {end: int(count) for end, count in found if int(count)}


@pytest.mark.parametrize(("status", "end"), [(400, "collected"), (422, "collected"), (500, "expired")])
def test_decode_is_told_with_a_request_that_it_rejects(harness, status, end):
    told = []

    def reject(connection, message):
        told.append(message)
        connection.send(response(status, b"{}"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    # Turns begin with the one that cannot be reached, so no decode worker sees the blocks.
    routing = {
        "prefill_urls": [prefill.url],
        "decode_urls": [harness.refusing_port().url, harness.worker(reject).url],
    }
    router = harness.router(routing=routing, disable_retries=True)
    client = harness.client(router)
    assert client.ask("POST", "/v1/completions", body=b'{"model":"m","prompt":"hi"}').status == 502
    eventually(lambda: ends(router) == [end], "the claim never ended so")
    assert [one.target for one in told] == ["/v1/completions"]
    assert json.loads(told[0].body) == {
        "model": "m",
        "prompt": "x",
        "max_tokens": -3,
        "kv_transfer_params": PARAMETERS,
    }


def test_it_can_be_left_to_the_lease(harness):
    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    router = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": [harness.refusing_port().url]},
        disable_retries=True,
        pd_orphan="expire",
    )
    assert harness.client(router).ask("POST", "/v1/completions", body=b'{"prompt":"hi"}').status == 502
    eventually(lambda: ends(router) == ["expired"], "the claim never ended")


@pytest.mark.parametrize(("status", "end"), [(200, "collected"), (500, "expired")])
def test_decode_can_be_made_to_fetch_them_for_a_token(harness, status, end):
    told = []

    def fetch(connection, message):
        told.append(message)
        connection.send(response(status, b"{}"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    urls = [harness.refusing_port().url, harness.worker(fetch).url]
    router = harness.router(
        routing={"prefill_urls": [prefill.url], "decode_urls": urls},
        disable_retries=True,
        pd_orphan="collect",
    )
    body = json.dumps({"model": "m", "prompt": "hi", "stream": True, "max_tokens": 9, "seed": 1}).encode()
    assert harness.client(router).ask("POST", "/v1/completions", body=body).status == 502
    eventually(lambda: ends(router) == [end], "the claim never ended so")
    assert [one.target for one in told] == ["/v1/completions"]
    one_token = {"model": "m", "prompt": "hi", "stream": False, "max_tokens": 1, "seed": 1}
    assert json.loads(told[0].body) == one_token | {"kv_transfer_params": PARAMETERS}


def rejecting_all(harness, **options):
    """A router whose requests reach no decode worker, and what the keeper sends."""
    told = []

    def reject(connection, message):
        told.append(message)
        connection.send(response(400, b"{}"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    decodes = [harness.refusing_port().url, harness.worker(reject).url]
    routing = {"prefill_urls": [prefill.url], "decode_urls": decodes}
    return harness.router(routing=routing, disable_retries=True, **options), told


@pytest.mark.parametrize("key", ["Bearer of-a-client", None])
@pytest.mark.parametrize("orphan", ["reject", "collect"])
def test_it_has_the_clients_key_which_engines_may_check(harness, orphan, key):
    router, told = rejecting_all(harness, pd_orphan=orphan, api_key="of-the-router")
    fields = [("Authorization", key)] if key else []
    client = harness.client(router)
    assert client.ask("POST", "/v1/completions", *fields, body=b'{"prompt":"hi"}').status == 502
    eventually(lambda: len(told) == 1, "nothing was sent")
    assert told[0].all("authorization") == [key or "Bearer of-the-router"]


def test_a_key_that_was_meant_for_the_router_goes_to_nobody(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("client-key\n")
    router, told = rejecting_all(harness, client_api_key_file=str(keys))
    client = harness.client(router)
    fields = ("Authorization", "Bearer client-key")
    assert client.ask("POST", "/v1/completions", fields, body=b'{"prompt":"hi"}').status == 502
    eventually(lambda: len(told) == 1, "nothing was sent")
    assert told[0].all("authorization") == []


def test_a_key_that_is_very_long_is_not_kept(harness):
    router, told = rejecting_all(harness)
    client = harness.client(router)
    fields = ("Authorization", "Bearer " + "x" * 9_000)
    assert client.ask("POST", "/v1/completions", fields, body=b'{"prompt":"hi"}').status == 502
    eventually(lambda: len(told) == 1, "nothing was sent")
    assert told[0].all("authorization") == []


def test_those_beyond_the_limit_wait_for_one_another(harness):
    """A burst of clients that leave must not strand what a few requests at once could free."""
    freeing, gate = [], threading.Event()

    def reject(connection, message):
        if json.loads(message.body).get("max_tokens") == -3:
            freeing.append(message)
            assert gate.wait(30)
        connection.send(response(400, b"{}"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    decodes = [harness.refusing_port().url, harness.worker(reject).url]
    routing = {"prefill_urls": [prefill.url], "decode_urls": decodes}
    options = {"disable_retries": True, "pd_orphan_max": 1, "threads": 1}
    router = harness.router(routing=routing, **options)
    client = harness.client(router)
    statuses = [client.ask("POST", "/v1/completions", body=b'{"prompt":"hi"}').status for _ in range(8)]
    assert sorted(statuses) == [400] * 4 + [502] * 4
    eventually(lambda: len(freeing) == 1, "nothing was freed")
    router.must_rest()
    assert (len(freeing), claims(router)) == (1, {})
    gate.set()
    # Those that decode has rejected as well, since its reason may be another than its engine's.
    eventually(lambda: claims(router) == {"collected": 8}, "they were not all freed")


@pytest.mark.parametrize("option", [{"pd_orphan_max": 0}, {"pd_orphan": "expire"}])
def test_none_waits_where_none_is_freed(harness, option):
    router, told = rejecting_all(harness, **option)
    assert harness.client(router).ask("POST", "/v1/completions", body=b'{"prompt":"hi"}').status == 502
    eventually(lambda: claims(router) == {"expired": 1}, "the claim never ended")
    assert told == []


def test_one_that_does_not_respond_is_the_last_to_be_asked(harness):
    """Else each of a burst would wait for it first."""
    freeing = []

    def is_freeing(message, name):
        if json.loads(message.body).get("max_tokens") == -3:
            freeing.append(name)

    def hang_up(connection, message):
        is_freeing(message, "silent")
        connection.end()

    def reject(connection, message):
        is_freeing(message, "other")
        connection.send(response(400, b"{}"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    decodes = [harness.worker(hang_up).url, harness.worker(reject).url]
    routing = {"prefill_urls": [prefill.url], "decode_urls": decodes}
    router = harness.router(routing=routing, disable_retries=True, threads=1)
    client = harness.client(router)
    for count in range(1, 9):
        client.ask("POST", "/v1/completions", body=b'{"prompt":"hi"}')
        eventually(lambda count=count: sum(claims(router).values()) == count, "a claim never ended")
    assert claims(router)["collected"] == 4
    assert freeing == ["silent", "other", "other", "other", "other"]
