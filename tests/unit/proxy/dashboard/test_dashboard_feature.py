"""cpp/proxy/dashboard/dashboard_feature.h: the port of the page, its key, and how it is switched off."""

import json

import pytest

from tests.fakes.viewer import EVENTS
from tests.fakes.wire import request


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text("the-admin-key-1234567890\n")
    return str(path)


def status(client, path, *fields):
    """Of a response that may not end; the connection is closed then."""
    client.send(request("GET", path, *fields))
    return client.read_head().status


def test_without_an_admin_port_it_is_on_the_main_one(harness):
    router = harness.router(harness.worker())
    assert status(harness.client(router), "/dashboard") == 200
    assert status(harness.client(router), EVENTS) == 200


def test_with_an_admin_port_it_is_there_alone(harness):
    router = harness.router(harness.worker(), admin_port=0)
    for path in ("/dashboard", EVENTS):
        assert status(harness.client_at(router.server.admin_port), path) == 200
        assert status(harness.client(router), path) == 404


def test_the_page_needs_no_key_and_its_events_need_an_admins(harness, keys):
    router = harness.router(harness.worker(), admin_api_key_file=keys)
    assert status(harness.client(router), "/dashboard") == 200
    assert status(harness.client(router), EVENTS) == 401
    assert status(harness.client(router), EVENTS, ("Authorization", "Bearer nobodys")) == 401
    key = ("Authorization", "Bearer the-admin-key-1234567890")
    assert status(harness.client(router), EVENTS, key) == 200


def test_where_clients_need_keys_and_admins_have_none_it_is_closed(harness, keys):
    router = harness.router(harness.worker(), client_api_key_file=keys)
    assert status(harness.client(router), "/dashboard") == 403
    assert status(harness.client(router), EVENTS) == 403


def test_a_page_of_another_site_cannot_read_the_events(harness):
    router = harness.router(harness.worker())
    foreign = (("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site"))
    assert status(harness.client(router), EVENTS, *foreign) == 403


def test_it_can_be_disabled(harness):
    router = harness.router(harness.worker(), dashboard=False)
    client = harness.client(router)
    for path in ("/dashboard", EVENTS):
        response = client.ask("GET", path)
        assert response.status == 404
        assert "--no-dashboard" in json.loads(response.body)["error"]["message"]
    assert "dashboard_viewers" not in router.server.metrics_text()


@pytest.mark.parametrize("interval", ["0", "61", "1.5", "x", "", "-1"])
def test_an_interval_that_is_none_is_rejected(harness, interval):
    response = harness.client(harness.router()).ask("GET", f"{EVENTS}?interval={interval}")
    assert response.status == 400
    assert json.loads(response.body)["error"]["message"] == (
        f'interval is "{interval}"; it is the seconds between two ticks and must be a whole number '
        "between 1 and 60"
    )


def test_nothing_can_be_changed(harness):
    client = harness.client(harness.router())
    assert client.ask("POST", "/dashboard", body=b"").status == 405
    assert client.ask("POST", EVENTS, body=b"").status == 405
    assert client.ask("HEAD", EVENTS).status == 405
