"""cpp/proxy/exchange/redirect_fields.h: nobody is led past the router by what a worker answers."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import response

CHAT = "/v1/chat/completions"


def fastapi(connection, message):
    """Redirects from a slash too many to the URL that it was called by, as Starlette makes it."""
    _, target, _ = message.start_line.split(" ")
    path, _, query = target.partition("?")
    if not path.endswith("/"):
        connection.send(response(200, path.encode()))
        return
    scheme = message.get("x-forwarded-proto")  # uvicorn believes a proxy on its own machine
    url = f"{scheme}://{message.get('host')}{path.rstrip('/')}" + (f"?{query}" if query else "")
    connection.send(response(307, b"", ("Location", url), ("X-Url", url)))


def followed(client, path):
    """The response behind the redirect, for a client that stays with the router."""
    answer = client.ask("POST", path, body=b"{}")
    assert answer.status == 307
    location = answer.get("location")
    assert answer.all("location") == [location]
    assert location.startswith("http://router/")
    return client.ask("POST", location.removeprefix("http://router"), body=b"{}")


@pytest.mark.parametrize("prefix", ["", "/engine/a"])
@pytest.mark.parametrize("preserve_host", [False, True])
def test_a_slash_too_many_leads_back_to_the_router(harness, prefix, preserve_host):
    """Row 19: the Location had the worker's address, so the client went past keys, limits and drains."""
    worker = harness.worker(fastapi)
    client = harness.client(harness.router(worker.url + prefix, preserve_host=preserve_host))
    answer = followed(client, CHAT + "/?beta=true")
    assert (answer.status, answer.body) == (200, (prefix + CHAT).encode())


def test_the_url_is_the_one_that_the_proxy_in_front_was_called_by(harness):
    worker = harness.worker(fastapi)
    outside = (("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "llm.example"))
    client = harness.client(harness.router(worker))
    assert (
        client.ask("POST", CHAT + "/", *outside, body=b"{}").get("location") == "https://llm.example" + CHAT
    )
    client = harness.client(harness.router(worker, trust_forwarded=False))
    assert client.ask("POST", CHAT + "/", *outside, body=b"{}").get("location") == "http://router" + CHAT


def test_other_places_and_other_responses_stay_as_they_are(harness):
    told = {}

    def tell(connection, _):
        fields = [(name, value.replace("WORKER", worker.url)) for name, value in told["fields"]]
        connection.send(response(told["status"], b"", *fields))

    worker = harness.worker(tell)
    client = harness.client(harness.router(worker))

    def places(status, *fields):
        told.update(status=status, fields=fields)
        answer = client.ask("GET", "/x")
        assert answer.status == status
        return answer.get("location"), answer.get("content-location")

    assert places(302, ("Location", "https://docs.vllm.ai/x"))[0] == "https://docs.vllm.ai/x"
    assert places(302, ("Location", "/y"))[0] == "/y"
    assert places(201, ("Location", "WORKER/y"))[0] == "http://router/y"
    assert places(303, ("Location", "WORKER/y"), ("Content-Location", "WORKER/z")) == (
        "http://router/y",
        "http://router/z",
    )
    assert places(200, ("Location", "WORKER/y"))[0] == worker.url + "/y"


def test_no_client_is_led_to_a_worker_of_a_stage(harness):
    """Row 19: a prefill worker would serve such a request alone. An unknown path reaches none of them."""
    prefill, decode = harness.worker(fastapi), harness.worker(fastapi)
    fleet = {"prefill_urls": [(prefill.url, 8998)], "decode_urls": [decode.url]}
    client = harness.client(harness.router(routing=fleet, pd_pass_paths=[CHAT + "/"]))
    answer = client.ask("POST", CHAT + "/", body=json.dumps({"prompt": "a"}).encode())
    assert answer.get("location") == "http://router" + CHAT
    client = harness.client(harness.router(routing=fleet))
    answer = client.ask("POST", CHAT + "/", body=b"{}")
    assert (answer.status, error_of(answer)["code"]) == (404, "path_not_passed")
