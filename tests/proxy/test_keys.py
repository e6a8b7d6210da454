"""Who gets in: clients' keys, admins' keys, and where each of them goes."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import eventually, request, response

OPEN = ["/health", "/liveness", "/readiness"]
ADMIN = ["/workers", "/list_workers", "/admin/index/stats", "/admin/prefix-routing/stats", "/workers/x"]


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "clients"
    path.write_text("# two teams\nsk-one\n\nsk-two\n")
    return path


@pytest.fixture
def admin_keys(tmp_path):
    path = tmp_path / "admins"
    path.write_text("sk-admin\n")
    return path


def bearer(key):
    return ("Authorization", f"Bearer {key}")


def replace(path, text):
    """As an editor or Kubernetes does it: at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


@pytest.mark.parametrize(
    "field",
    [bearer("sk-one"), ("authorization", "bearer  sk-two "), ("X-Api-Key", "sk-two"), ("Api-Key", "sk-two")],
)
def test_a_client_with_a_key_is_served(harness, keys, field):
    client = harness.client(harness.router(harness.worker(), client_api_key_file=str(keys)))
    assert client.ask("POST", "/v1/completions", field, body=b"{}").body == b"hello"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ((), "missing_api_key"),
        ((("X-Api-Key", ""),), "missing_api_key"),
        ((bearer("sk-three"),), "invalid_api_key"),
        ((bearer("sk-on"),), "invalid_api_key"),
        ((bearer("sk-one2"),), "invalid_api_key"),
        ((bearer("SK-ONE"),), "invalid_api_key"),
        ((("Authorization", "sk-one"),), "invalid_api_key"),
        ((("Authorization", "Basic sk-one"),), "invalid_api_key"),
        ((("Authorization", "Bearer"),), "invalid_api_key"),
        ((bearer("sk-one"), bearer("sk-one")), "invalid_api_key"),
        ((bearer("sk-three"), ("X-Api-Key", "sk-one")), "invalid_api_key"),
    ],
)
def test_a_client_without_one_is_refused_before_its_body_is_read(harness, keys, fields, code):
    worker = harness.worker()
    client = harness.client(harness.router(worker, client_api_key_file=str(keys)))
    client.send(request("POST", "/v1/completions", *fields, ("Content-Length", "1000000")))
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (401, code)
    challenge = 'Bearer realm="vllm-router"'
    if code == "invalid_api_key":
        challenge += ', error="invalid_token"'
    assert answer.get("www-authenticate") == challenge
    assert answer.get("connection") == "close"
    assert "sk-" not in answer.head.decode() + answer.body.decode()
    assert worker.requests == []


def test_every_path_that_a_worker_serves_needs_a_key_and_health_does_not(harness, keys):
    client = harness.client(harness.router(harness.worker(), client_api_key_file=str(keys)))
    for path in ("/v1/models", "/v1/chat/completions", "/anything", "/health/", "/workers/"):
        assert client.ask("GET", path).status == 401, path
    for path in OPEN:
        assert client.ask("GET", path).status == 200, path
    assert client.ask("OPTIONS", "*").status == 200


def test_a_refused_client_may_go_on_with_a_key(harness, keys):
    client = harness.client(harness.router(harness.worker(), client_api_key_file=str(keys)))
    assert client.ask("GET", "/x").status == 401
    assert client.ask("GET", "/x", bearer("sk-one")).status == 200


@pytest.mark.parametrize("field", [bearer("sk-one"), ("x-api-key", "sk-one")])
@pytest.mark.parametrize("worker_key", [None, "worker-key"])
def test_a_clients_key_goes_no_further(harness, keys, field, worker_key):
    worker = harness.worker()
    router = harness.router(worker, client_api_key_file=str(keys), api_key=worker_key)
    assert harness.client(router).ask("GET", "/x", field, ("X-Other", "kept")).status == 200
    (seen,) = worker.requests
    assert seen.get("authorization") == (worker_key and f"Bearer {worker_key}")
    assert seen.get("x-api-key") is None
    assert seen.get("x-other") == "kept"
    assert b"sk-one" not in seen.raw


def test_a_workers_key_never_comes_to_a_client(harness, keys, admin_keys):
    def answer(connection, message):
        models = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
        connection.send(response(200, models))
        assert message.get("authorization") == "Bearer worker-secret"

    worker = harness.worker(answer)
    router = harness.router(
        worker,
        api_key="worker-secret",
        client_api_key_file=str(keys),
        admin_api_key_file=str(admin_keys),
        prometheus_port=0,
    )
    client = harness.client(router)
    for path in (*OPEN, "/v1/models", "/x"):
        client.ask("GET", path, bearer("sk-one"))
    for path in ADMIN:
        client.ask("GET", path, bearer("sk-admin"))
    harness.client_at(router.server.metrics_port).ask("GET", "/metrics")
    seen = bytes(client.received) + router.server.metrics_text().encode()
    for secret in (b"worker-secret", b"sk-one", b"sk-admin"):
        assert secret not in seen


def test_without_a_file_of_keys_authorization_passes_as_before(harness):
    worker = harness.worker()
    harness.client(harness.router(worker)).ask("GET", "/x", bearer("mine"), ("x-api-key", "mine too"))
    assert worker.requests[0].get("authorization") == "Bearer mine"
    assert worker.requests[0].get("x-api-key") == "mine too"


# ---- admins


@pytest.mark.parametrize("path", ADMIN)
def test_admin_paths_have_keys_of_their_own(harness, keys, admin_keys, path):
    router = harness.router(client_api_key_file=str(keys), admin_api_key_file=str(admin_keys))
    client = harness.client(router)
    assert client.ask("GET", path).status == 401
    assert client.ask("GET", path, bearer("sk-one")).status == 401
    assert client.ask("GET", path, bearer("sk-admin")).status != 401
    assert client.ask("GET", "/x", bearer("sk-admin")).status == 401


def test_without_admin_keys_they_are_shut_once_clients_need_keys(harness, keys):
    client = harness.client(harness.router(client_api_key_file=str(keys)))
    answer = client.ask("POST", "/add_worker?url=http://10.0.0.1:1", bearer("sk-one"), body=b"")
    assert (answer.status, error_of(answer)["code"]) == (403, "admin_closed")
    assert answer.get("www-authenticate") is None


def test_admin_keys_alone_leave_clients_without(harness, admin_keys):
    client = harness.client(harness.router(harness.worker(), admin_api_key_file=str(admin_keys)))
    assert client.ask("GET", "/x", bearer("whatever")).status == 200
    assert client.ask("GET", "/workers").status == 401


def test_an_admin_port_takes_admin_paths_off_the_main_one(harness, keys, admin_keys):
    worker = harness.worker()
    router = harness.router(worker, client_api_key_file=str(keys), admin_port=0)
    client, admin = harness.client(router), harness.client_at(router.server.admin_port)
    for path in ADMIN:
        assert client.ask("GET", path, bearer("sk-one")).status == 404, path
    assert json.loads(admin.ask("GET", "/list_workers").body) == {"urls": [worker.url]}
    for path in OPEN:
        assert admin.ask("GET", path).status == 200, path
    for path in ("/v1/completions", "/v1/models", "/anything"):
        answer = admin.ask("GET", path, bearer("sk-one"))
        assert (answer.status, error_of(answer)["code"]) == (404, "not_found"), path
    assert worker.requests == []

    guarded = harness.router(worker, admin_port=0, admin_api_key_file=str(admin_keys))
    admin = harness.client_at(guarded.server.admin_port)
    assert admin.ask("GET", "/workers").status == 401
    assert admin.ask("GET", "/workers", bearer("sk-admin")).status == 200
    assert admin.ask("GET", "/liveness").status == 200


# ---- files that change


def test_a_file_that_changed_is_read_again_and_a_bad_one_is_not_heeded(harness, keys, written_to):
    stderr = written_to(2)
    client = harness.client(harness.router(harness.worker(), client_api_key_file=str(keys)))

    def status(key):
        return client.ask("GET", "/x", bearer(key)).status

    assert (status("sk-one"), status("sk-new")) == (200, 401)
    replace(keys, "sk-new\n")
    eventually(lambda: status("sk-new") == 200, "the new key never came into force")
    assert status("sk-one") == 401
    replace(keys, "two keys\n")
    eventually(lambda: "line 1" in stderr(), "nobody complained")
    assert status("sk-new") == 200


def test_a_reload_reads_at_once(harness, keys):
    router = harness.router(harness.worker(), client_api_key_file=str(keys))
    assert router.server.has_something_to_reload
    client = harness.client(router)
    keys.write_text("sk-new\n")
    router.server.reload()
    eventually(lambda: client.ask("GET", "/x", bearer("sk-new")).status == 200)
    assert not harness.router().server.has_something_to_reload


def reloads(router, file):
    """(read again, could not be)"""
    told = dict(
        line.split(" ")
        for line in router.server.metrics_text().splitlines()
        if line.startswith(f'vllm_router_reloads_total{{file="{file}"')
    )
    return tuple(
        int(told[f'vllm_router_reloads_total{{file="{file}",result="{result}"}}'])
        for result in ("ok", "failed")
    )


def test_what_was_read_again_is_counted(harness, keys, admin_keys):
    router = harness.router(client_api_key_file=str(keys), admin_api_key_file=str(admin_keys))
    assert reloads(router, "client_keys") == reloads(router, "admin_keys") == (0, 0)
    keys.write_text("two keys\n")
    router.server.reload()
    eventually(lambda: (reloads(router, "client_keys"), reloads(router, "admin_keys")) == ((0, 1), (1, 0)))
    keys.write_text("sk-new\n")
    router.server.reload()
    eventually(lambda: (reloads(router, "client_keys"), reloads(router, "admin_keys")) == ((1, 1), (2, 0)))
    assert "vllm_router_reloads_total{" not in harness.router().server.metrics_text()
