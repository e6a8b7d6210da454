"""cpp/proxy/admin/scale_reply.h: GET /scale, its errors, and who may ask."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.models import ModelWorker, wait_until_known
from tests.fakes.wire import eventually


def ready(client, path="/scale", *fields):
    eventually(lambda: client.ask("GET", path, *fields).status == 200)
    return client.ask("GET", path, *fields)


def test_the_only_model_needs_no_name_and_several_do(harness):
    router = harness.router(ModelWorker(harness, "org/a"), model_refresh_secs=3600)
    wait_until_known(router, 1)
    client = harness.client(router)
    eventually(lambda: json.loads(ready(client).body)["model"] == "org/a")
    assert json.loads(ready(client, "/scale?model=org%2Fa").body)["model"] == "org/a"
    router.core.add_worker(ModelWorker(harness, "b").url)
    two = harness.router(ModelWorker(harness, "a"), ModelWorker(harness, "b"), model_refresh_secs=3600)
    wait_until_known(two, 2)
    client = harness.client(two)
    ready(client, "/scale?model=b")
    answer = client.ask("GET", "/scale")
    assert answer.status == 400
    assert error_of(answer)["message"] == 'The query parameter \'model\' is missing; there are "a", "b".'


def test_an_unknown_model_is_404_and_names_those_there_are(harness):
    client = harness.client(harness.router(harness.worker()))
    assert json.loads(ready(client, "/scale?model=").body)["model"] == ""
    answer = client.ask("GET", "/scale?model=x%0a%22")
    assert answer.status == 404
    assert 'there are "".' in error_of(answer)["message"]
    assert client.ask("GET", "/scale?model=%zz").status == 400
    assert client.ask("GET", "/scale?model=a&model=b").status == 400
    assert client.ask("POST", "/scale").status == 405


def test_many_names_are_cut(harness):
    names = [f"m{n:02}" for n in range(30)]
    router = harness.router(*(ModelWorker(harness, name) for name in names), model_refresh_secs=3600)
    wait_until_known(router, 30)
    client = harness.client(router)
    ready(client, "/scale?model=m29")
    message = error_of(client.ask("GET", "/scale"))["message"]
    assert message.endswith(" and 10 more.")


def test_nothing_is_said_before_the_first_lists(harness):
    router = harness.router()
    router.core._report_source("mine", "timeout", "no response")
    client = harness.client(router)
    message = lambda: error_of(client.ask("GET", "/scale"))["message"]  # noqa: E731
    eventually(lambda: message() == "Nothing is known of the workers yet: waiting for mine.")
    assert client.ask("GET", "/scale").status == 503
    assert "vllm_router_scale_desired_replicas{" not in router.server.metrics_text()
    router.core.reconcile("mine", [])
    assert json.loads(ready(client).body)["desired_replicas"] == 0


@pytest.fixture
def keys(tmp_path):
    file = tmp_path / "admins"
    file.write_text("sk-admin")
    clients = tmp_path / "clients"
    clients.write_text("sk-client")
    return {"admin_api_key_file": str(file), "client_api_key_file": str(clients)}


def test_it_takes_an_admin_key_unless_it_is_public(harness, keys):
    worker = harness.worker()
    client = harness.client(harness.router(worker, **keys))
    assert client.ask("GET", "/scale").status == 401
    assert client.ask("GET", "/scale", ("Authorization", "Bearer sk-client")).status == 401
    ready(client, "/scale", ("Authorization", "Bearer sk-admin"))
    public = harness.client(harness.router(worker, scale_public=True, **keys))
    ready(public)
    assert public.ask("GET", "/workers").status == 401
    assert public.ask("GET", "/metrics").status == 401


def test_it_is_on_the_admin_port_unless_it_is_public(harness):
    worker = harness.worker()
    for is_public in (False, True):
        router = harness.router(worker, admin_port=0, scale_public=is_public)
        ready(harness.client_at(router.server.admin_port))
        answer = harness.client(router).ask("GET", "/scale")
        assert answer.status == (200 if is_public else 404)
        assert worker.requests == []  # it never reaches a worker
