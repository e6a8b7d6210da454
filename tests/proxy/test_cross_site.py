"""What a page that an operator visits can do to the fleet, and what a worker that a stranger added gets.

mending row 8: admin endpoints reject requests that browsers make for pages of other sites, whatever the keys;
--api-key goes to workers that were configured, or added through an endpoint that asked for an admin key.
"""

import urllib.parse

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, response

EVIL = ("Origin", "https://evil.example")
UI = ("Origin", "https://ui.example")
CALLS = [
    ("POST", "/add_worker?url=http://127.0.0.1:9"),
    ("POST", "/remove_worker?url={url}"),
    ("POST", "/workers"),
    ("DELETE", "/workers/{url}"),
    ("GET", "/workers"),
    ("GET", "/workers/{url}"),
    ("GET", "/list_workers"),
    ("GET", "/get_loads"),
    ("POST", "/admin/drain"),
    ("DELETE", "/admin/drain"),
    ("GET", "/admin/drain/status"),
    ("GET", "/admin/prefix-routing/stats"),
    ("GET", "/admin/index/stats"),
    ("POST", "/admin/index/clear"),
]
BY_A_PAGE = [
    [EVIL],
    [("Origin", "null")],
    [EVIL, ("Sec-Fetch-Site", "cross-site")],
    [("Sec-Fetch-Site", "cross-site")],
    [("Sec-Fetch-Site", "same-site")],
    [UI, EVIL],
]


def ask(client, call, *fields):
    method, target = call
    return client.ask(method, target, *fields, body=b"{}" if method == "POST" else b"")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call))
@pytest.mark.parametrize("fields", BY_A_PAGE, ids=lambda fields: " ".join(value for _, value in fields))
def test_admin_endpoints_reject_what_a_browser_sends_for_another_site(harness, call, fields):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    method, target = call
    target = target.replace("{url}", urllib.parse.quote(worker.url, safe=""))
    answer = ask(client, (method, target), *fields)
    assert (answer.status, error_of(answer)["code"]) == (403, "cross_site_request")
    assert router.core.worker_urls == [worker.url]
    assert not router.core.workers[0].draining
    assert worker.requests == []


def test_a_page_that_rebound_its_name_to_the_router_is_rejected(harness):
    """mending row 8: its Origin is what Host says."""
    client = harness.client(harness.router())
    fields = [("Origin", "http://rebound.example:30000"), ("Sec-Fetch-Site", "same-origin")]
    answer = client.ask("POST", "/remove_worker?url=http://a", *fields, host="rebound.example:30000")
    assert (answer.status, error_of(answer)["code"]) == (403, "cross_site_request")


def test_keys_do_not_open_them_to_a_page(harness, tmp_path):
    """A browser may know the key."""
    keys = tmp_path / "admins"
    keys.write_text("sk-admin")
    client = harness.client(harness.router(admin_api_key_file=str(keys)))
    bearer = ("Authorization", "Bearer sk-admin")
    assert client.ask("GET", "/workers", bearer).status == 200
    assert client.ask("GET", "/workers", bearer, EVIL).status == 403
    assert client.ask("GET", "/workers", EVIL).status == 403


def test_a_port_of_their_own_does_not_open_them_to_a_page(harness):
    router = harness.router(admin_port=0)
    client = harness.client_at(router.server.admin_port)
    assert client.ask("GET", "/workers", EVIL).status == 403
    assert client.ask("GET", "/workers").status == 200
    assert client.ask("GET", "/liveness", EVIL).status == 200


def test_named_origins_and_programs_may(harness):
    client = harness.client(harness.router(cors_allowed_origins=[UI[1], "*"]))
    assert client.ask("GET", "/workers", UI, ("Sec-Fetch-Site", "cross-site")).status == 200
    assert client.ask("GET", "/workers", ("Sec-Fetch-Site", "none")).status == 200
    assert client.ask("GET", "/workers", ("Sec-Fetch-Site", "same-origin")).status == 200
    assert client.ask("GET", "/workers").status == 200
    assert client.ask("GET", "/workers", EVIL).status == 403  # "*" is for what clients may call


def test_a_preflight_of_another_site_s_page_is_rejected_as_well(harness):
    client = harness.client(harness.router())
    answer = client.ask("OPTIONS", "/workers", EVIL, ("Access-Control-Request-Method", "DELETE"))
    assert (answer.status, answer.get("access-control-allow-origin")) == (403, None)


def test_what_goes_to_workers_is_not_concerned(harness):
    client = harness.client(harness.router(harness.worker()))
    assert client.ask("POST", "/v1/completions", EVIL, body=b"{}").status == 200


# ---- the workers' key


def keyed(harness, tmp_path, admins_have_keys, **options):
    if admins_have_keys:
        keys = tmp_path / "admins"
        keys.write_text("sk-admin")
        options["admin_api_key_file"] = str(keys)
    return harness.router(api_key="worker-key", health_check_interval_secs=0.1, **options)


def models(connection, _message):
    connection.send(response(200, b'{"object": "list", "data": [{"id": "m"}]}'))


@pytest.mark.parametrize("form", ["query", "body"])
@pytest.mark.parametrize("admins_have_keys", [False, True], ids=["no key", "admin key"])
def test_a_worker_gets_the_key_if_the_endpoint_that_added_it_asked_for_one(
    harness, tmp_path, form, admins_have_keys, capfd
):
    """mending row 8: a stranger's worker received --api-key with its first health check."""
    worker = harness.worker(models)
    router = keyed(harness, tmp_path, admins_have_keys, load_poll_interval_secs=0.1)
    client = harness.client(router)
    bearer = [("Authorization", "Bearer sk-admin")] if admins_have_keys else []
    if form == "query":
        added = client.ask("POST", f"/add_worker?url={worker.url}", *bearer)
    else:
        added = client.ask("POST", "/workers", *bearer, body=b'{"url": "%s"}' % worker.url.encode())
    assert added.status == 200
    assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    assert client.ask("GET", "/v1/models").status == 200
    assert client.ask("GET", "/get_loads", *bearer).status == 200
    targets = {"/health", "/v1/completions", "/v1/models", "/metrics"}
    eventually(lambda: targets <= {message.target for message in list(worker.requests)})
    eventually(lambda: sum(message.target == "/health" for message in list(worker.requests)) > 2)
    expected = "Bearer worker-key" if admins_have_keys else None
    assert {message.get("authorization") for message in list(worker.requests)} == {expected}
    assert ("does not receive --api-key" in capfd.readouterr().err) == (not admins_have_keys)


def test_a_client_s_own_key_passes_to_a_worker_without_ours(harness, tmp_path):
    worker = harness.worker()
    client = harness.client(keyed(harness, tmp_path, False))
    assert client.ask("POST", f"/add_worker?url={worker.url}").status == 200
    assert client.ask("GET", "/x", ("Authorization", "Bearer mine")).status == 200
    assert worker.requests[-1].get("authorization") == "Bearer mine"


def test_configured_workers_and_those_that_the_program_adds_get_the_key(harness):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first, api_key="worker-key")
    router.core.add_worker(second.url)
    client = harness.client(router)
    for _ in range(2):
        assert client.ask("GET", "/x").status == 200
    for worker in (first, second):
        assert [message.get("authorization") for message in worker.requests] == ["Bearer worker-key"]


def test_a_rank_of_a_host_that_has_the_key_gets_it(harness):
    worker = harness.worker()
    router = harness.router(f"{worker.url}@0", api_key="worker-key")
    client = harness.client(router)
    assert client.ask("POST", f"/add_worker?url={worker.url}@1").status == 200
    for _ in range(2):
        assert client.ask("GET", "/x").status == 200
    ours = [message.get("authorization") for message in worker.requests if message.target == "/x"]
    assert ours == ["Bearer worker-key"] * 2
