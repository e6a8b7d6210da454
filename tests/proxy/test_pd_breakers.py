"""Breakers of decode workers: requests that are sent probe a half-open one, not those still in prefill."""

import json
from typing import Any

from tests.fakes.harness import Client, Harness
from tests.fakes.pd import WHOLE, ask
from tests.fakes.wire import Message, eventually, request, response
from tests.fakes.worker import Connection

# So it stays half-open.
BREAKERS = {
    "disable_circuit_breaker": False,
    "cb_failure_threshold": 1,
    "cb_success_threshold": 1000,
    "cb_timeout_duration_secs": 0.05,
}


class Fleet:
    """A prefill worker, a half-open decode worker and another one. Slow prompts wait at a gate of each."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.failing = True
        self.prefill = harness.worker(self._prefill)
        self.first = harness.worker(self._first)
        self.other = harness.worker(self._decode)
        self.computed, self.generated = self.prefill.gate(), self.prefill.gate()
        routing = {
            "prefill_urls": [self.prefill.url],
            "decode_urls": [self.first.url, self.other.url],
        }
        self.router = harness.router(routing=routing, policy="round_robin", **BREAKERS)
        client = harness.client(self.router)
        eventually(lambda: self._local(client) == 500, "it never failed")
        self.failing = False
        seen = len(self.first.requests)

        def is_probed() -> bool:
            assert self._local(client) == 200
            return len(self.first.requests) > seen

        eventually(is_probed, "its breaker never came due")

    def slow(self) -> Client:
        """A client whose request has reached the prefill worker."""
        client = self.harness.client(self.router)
        client.send(request("POST", "/v1/completions", body=json.dumps({"prompt": "slow"}).encode()))
        self.computed.wait_for_someone()
        return client

    @staticmethod
    def _local(client: Client) -> int:
        return ask(client, n=2).status

    @staticmethod
    def _is_slow(message: Message) -> bool:
        return json.loads(message.body)["prompt"] == "slow"

    def _prefill(self, connection: Connection, message: Message) -> None:
        if self._is_slow(message):
            self.computed.wait()
        connection.send(response(200, WHOLE))

    def _decode(self, connection: Connection, message: Message) -> None:
        if self._is_slow(message):
            self.generated.wait()
        connection.send(response(200, b"hello"))

    def _first(self, connection: Connection, message: Message) -> None:
        if self.failing:
            connection.send(response(500, b"no"))
        else:
            self._decode(connection, message)

    def slow_at(self, worker: Any) -> int:
        return sum(self._is_slow(message) for message in worker.requests)


def test_a_slow_prefill_keeps_no_other_request_from_a_half_open_decode_worker(harness):
    fleet = Fleet(harness)
    slow = [fleet.slow() for _ in range(2)]
    assert fleet.router.loads() == [2, 1, 1]
    seen = len(fleet.first.requests)
    client = harness.client(fleet.router)
    assert [ask(client).status for _ in range(4)] == [200] * 4
    assert len(fleet.first.requests) == seen + 2
    fleet.computed.open()
    fleet.generated.open()
    assert [one.read_response().body for one in slow] == [b"hello"] * 2


def test_of_those_that_waited_for_prefill_one_probes_and_others_go_elsewhere(harness):
    fleet = Fleet(harness)
    slow = [fleet.slow() for _ in range(4)]
    assert fleet.router.loads() == [4, 2, 2]
    fleet.computed.open()
    eventually(lambda: fleet.slow_at(fleet.first) == 1 and fleet.slow_at(fleet.other) == 3)
    assert fleet.router.loads() == [0, 1, 3]
    fleet.generated.open()
    assert [one.read_response().body for one in slow] == [b"hello"] * 4


def test_without_another_decode_worker_all_that_waited_for_prefill_are_sent(harness):
    fleet = Fleet(harness)
    fleet.router.core.remove_worker(fleet.other.url)
    slow = [fleet.slow() for _ in range(3)]
    assert fleet.router.loads() == [3, 3]
    fleet.computed.open()
    eventually(lambda: fleet.slow_at(fleet.first) == 3)
    fleet.generated.open()
    assert [one.read_response().body for one in slow] == [b"hello"] * 3


def test_a_breaker_that_opens_again_while_prefill_computes_fails_no_request(harness):
    fleet = Fleet(harness)
    slow = [fleet.slow() for _ in range(2)]
    fleet.failing = True
    client = harness.client(fleet.router)
    eventually(lambda: ask(client, n=2).status == 500)  # the probe
    fleet.failing = False
    fleet.generated.open()
    fleet.computed.open()
    assert [one.read_response().body for one in slow] == [b"hello"] * 2
