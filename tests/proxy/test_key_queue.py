"""Keys that clients invent do not delay those of others.

mending row 11: validations of clients that left are dropped; unknown keys queue behind refreshes of good
ones; client addresses take turns, and each has at most an eighth of the places.
"""

import contextlib
import socket
import threading

import pytest

from tests.fakes.harness import Client, error_of
from tests.fakes.wire import PATIENCE, eventually, request, response

AT_ONCE = 64  # kMaxKeyQuestions
SHARE = 1250  # kMaxKeyWaitersPerAddress
GOOD = ("Authorization", "Bearer good")


def bearer(key):
    return ("Authorization", f"Bearer {key}")


class Validator:
    """Says yes to "good" at once. For other keys it waits: for a permit, or, where `hangs`, for ever."""

    def __init__(self, harness, hangs=False):
        self.permits = threading.Semaphore(0)
        self.hangs = hangs
        self.worker = harness.worker(self.answer)
        self.url = f"{self.worker.url}/validate"

    def answer(self, connection, message):
        valid = message.get("authorization") == "Bearer good"
        if not valid and self.hangs:
            connection.ending()
        elif not valid and not self.permits.acquire(timeout=PATIENCE):
            return
        connection.send(response(200 if valid else 401))

    def asked(self):
        return [
            message.get("authorization").removeprefix("Bearer ") for message in list(self.worker.requests)
        ]

    def close(self):
        for _ in range(2000):
            self.permits.release()


@pytest.fixture
def connect():
    """Clients at an address of this machine's."""
    with contextlib.ExitStack() as stack:

        def connect(router, address="127.0.0.1"):
            client = Client(socket.create_connection(("127.0.0.1", router.port), source_address=(address, 0)))
            stack.callback(client.close)
            return client

        yield connect


def send_keys(connect, router, count, address="127.0.0.1"):
    """That many clients, each with a key of its own."""
    clients = [connect(router, address) for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(request("GET", "/x", bearer(f"{address}-{number}")))
    for client in clients:
        client.wait_until_read()
    return clients


def waiting(router):
    line = "vllm_router_key_validations_waiting "
    return next(
        int(row.removeprefix(line))
        for row in router.server.metrics_text().splitlines()
        if row.startswith(line)
    )


def test_keys_of_clients_that_left_do_not_delay_an_honest_one(harness):
    """mending row 11: 64 were asked about at a time, and the honest key came last."""
    validator = Validator(harness, hangs=True)
    router = harness.router(
        harness.worker(), api_key_validation_urls=[validator.url], api_key_validation_timeout_secs=100
    )
    for number in range(3000):
        with socket.create_connection(("127.0.0.1", router.port)) as client:
            client.sendall(request("GET", "/x", bearer(f"invented-{number}")))
    assert harness.client(router).ask("GET", "/x", GOOD).status == 200
    eventually(lambda: waiting(router) == 0)


def test_a_validation_that_no_client_waits_for_is_abandoned(harness):
    validator = Validator(harness, hangs=True)
    router = harness.router(api_key_validation_urls=[validator.url], api_key_validation_timeout_secs=100)
    leaving = harness.client(router)
    leaving.send(request("GET", "/x", bearer("bad")))
    validator.worker.wait_for_requests(1)
    leaving.close()
    assert validator.worker.connections[0].wait_ended() in ("eof", "reset")
    again = harness.client(router)
    again.send(request("GET", "/x", bearer("bad")))
    validator.worker.wait_for_requests(2)
    again.close()
    eventually(lambda: waiting(router) == 0)


def test_a_key_that_was_good_is_refreshed_before_unknown_ones(harness, connect):
    validator = Validator(harness)
    router = harness.router(
        harness.worker(),
        api_key_validation_urls=[validator.url],
        api_key_validation_timeout_secs=100,
        api_key_validation_cache_secs=0,
    )
    good = harness.client(router)
    assert good.ask("GET", "/x", GOOD).status == 200
    send_keys(connect, router, AT_ONCE + 20)
    validator.worker.wait_for_requests(1 + AT_ONCE)
    good.send(request("GET", "/x", GOOD))
    eventually(lambda: waiting(router) == AT_ONCE + 20 + 1)
    validator.permits.release()
    assert good.read_response().status == 200
    assert validator.asked()[1 + AT_ONCE] == "good"
    validator.close()


def test_client_addresses_take_turns(harness, connect):
    """mending row 11: an honest client waited behind all keys that came before its own."""
    validator = Validator(harness)
    router = harness.router(
        harness.worker(), api_key_validation_urls=[validator.url], api_key_validation_timeout_secs=100
    )
    send_keys(connect, router, AT_ONCE + 100)
    validator.worker.wait_for_requests(AT_ONCE)
    honest = connect(router, "127.0.0.2")
    honest.send(request("GET", "/x", GOOD))
    eventually(lambda: waiting(router) == AT_ONCE + 100 + 1)
    for _ in range(2):
        validator.permits.release()
    assert honest.read_response().status == 200
    assert "good" in validator.asked()[AT_ONCE : AT_ONCE + 2]
    validator.close()


def test_an_address_has_an_eighth_of_the_places(harness, connect):
    validator = Validator(harness)
    router = harness.router(
        harness.worker(), api_key_validation_urls=[validator.url], api_key_validation_timeout_secs=100
    )
    clients = send_keys(connect, router, SHARE)
    eventually(lambda: waiting(router) == SHARE)
    one_more = connect(router).ask("GET", "/x", bearer("one-more"))
    assert (one_more.status, error_of(one_more)["code"]) == (503, "key_not_checked")
    assert one_more.get("retry-after") == "1"
    line = 'vllm_router_key_validations_rejected_total{reason="address_share"} 1\n'
    assert line in router.server.metrics_text()
    honest = connect(router, "127.0.0.2")
    honest.send(request("GET", "/x", GOOD))
    eventually(lambda: waiting(router) == SHARE + 1)
    validator.close()
    assert honest.read_response().status == 200
    for client in clients:
        assert client.read_response().status == 401


def test_clients_that_share_a_good_key_do_not_count(harness, connect):
    """They may all come from one proxy, and the key is refreshed once for all."""
    validator = Validator(harness)
    router = harness.router(
        harness.worker(),
        api_key_validation_urls=[validator.url],
        api_key_validation_timeout_secs=100,
        api_key_validation_cache_secs=0,
    )
    assert connect(router).ask("GET", "/x", GOOD).status == 200
    send_keys(connect, router, SHARE)
    eventually(lambda: waiting(router) == SHARE)
    several = [connect(router) for _ in range(20)]
    for client in several:
        client.send(request("GET", "/x", GOOD))
    eventually(lambda: waiting(router) == SHARE + 20)
    validator.close()
    assert [client.read_response().status for client in several] == [200] * 20
