"""cpp/proxy/api/server_options.h, as bindings/server.cc fills it in."""

import pytest

from tests.fakes.wire import request, response
from tests.rows import for_each_row
from vllm_router import Router, _core

ROUTER = Router(policy="round_robin")
SECONDS = [name for name in _core.Server.option_names if name.endswith(("_secs", "_interval"))]


def start(**options):
    return _core.Server(ROUTER, **{"port": 0, "access_log": False, **options})


def test_every_option_has_a_default_so_none_is_needed():
    assert start().host == "127.0.0.1"


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(TypeError, match="the server has no option 'pord'"):
        start(pord=1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("port", "http"),
        ("threads", 1.5),
        ("max_payload_size", -1),
        ("host", 5),
        ("connect_timeout_secs", "soon"),
        ("request_id_headers", "x-request-id-as-a-number"),
        ("preserve_host", []),
        ("prometheus_port", 70_000),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_with_its_name(name, value):
    if name == "request_id_headers":
        value = 5
    if name == "preserve_host":
        value = "yes"
    with pytest.raises(ValueError, match=f"{name} is {value!r}, which is not of its type or range"):
        start(**{name: value})


def test_none_leaves_the_default_where_it_may_be_given():
    start(api_key=None, request_id_headers=None, prometheus_host=None, prometheus_port=None)


@for_each_row("name", SECONDS)
def test_seconds_may_have_fractions(name):
    start(**{name: 0.25})


def test_a_tiny_limit_is_a_millisecond_and_not_none(harness):
    # The wheel's tick is 100 ms, so "at once" is what this comes to.
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, first_byte_timeout_secs=0.0001)
    client = harness.client(router)
    client.send(request())
    assert client.read_response().status == 504


def test_zero_is_no_limit(harness):
    def late(connection, _message):
        pause._event.wait(0.3)
        connection.send(response(200, b"late"))

    worker = harness.worker(late)
    pause = worker.gate()
    router = harness.router(
        worker,
        first_byte_timeout_secs=0,
        request_timeout_secs=0,
        stream_idle_timeout_secs=0,
        connect_timeout_secs=0,
        client_idle_timeout_secs=0,
        client_head_timeout_secs=0,
    )
    assert harness.client(router).ask().body == b"late"
