"""cpp/proxy/disaggregation/pair_fact_poller.h: who is asked, and how often."""

import itertools
import time

from tests.fakes.pd_mooncake import (
    Fabric,
    MooncakeDecode,
    MooncakePrefill,
    ask,
    mooncake_pair,
    mooncake_router,
    text,
    wait_until_chosen,
)
from tests.fakes.wire import eventually, response


def test_ranks_of_a_host_are_asked_for_once(harness):
    fabric = Fabric()
    prefill, decode = MooncakePrefill(harness, fabric, ranks=4), MooncakeDecode(harness, fabric)
    routing = {
        "prefill_urls": [(f"{prefill.url}@{rank}", prefill.port) for rank in range(4)],
        "decode_urls": [decode.url],
    }
    router = harness.router(routing=routing, kv_connector="mooncake")
    wait_until_chosen(router, harness, 4)
    assert len(prefill.queries) == 1


def test_what_is_known_is_not_asked_for_again_soon(harness):
    fabric = Fabric()
    prefill, decode = MooncakePrefill(harness, fabric), MooncakeDecode(harness, fabric)
    client = harness.client(mooncake_pair(harness, prefill, decode=[decode]))
    for _ in range(30):
        assert text(ask(client)) == "transferred hello"
    assert len(prefill.queries) == 1


def test_what_fails_is_asked_for_less_and_less_often(harness):
    fabric = Fabric()
    failing, decode = MooncakePrefill(harness, fabric), MooncakeDecode(harness, fabric)
    times = []

    def fail(connection):
        times.append(time.monotonic())
        connection.send(response(200, b"{}"))

    failing.query = fail
    mooncake_router(harness, [failing], [decode])
    eventually(lambda: len(times) >= 4)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    # Never earlier; later if this machine is busy. The pauses vary by a tenth.
    assert all(gap > pause for gap, pause in zip(gaps, (0.22, 0.45, 0.9), strict=False))


def test_a_removed_worker_is_not_asked_for(harness):
    fabric = Fabric()
    failing, decode = MooncakePrefill(harness, fabric), MooncakeDecode(harness, fabric)
    failing.query = b"{}"
    stays = MooncakePrefill(harness, fabric)
    stays.query = b"{}"
    router = mooncake_router(harness, [failing, stays], [decode])
    eventually(lambda: failing.queries != [])
    router.core.remove_worker(failing.url)
    before = len(failing.queries)
    count = len(stays.queries)
    eventually(lambda: len(stays.queries) > count + 2)
    assert len(failing.queries) <= before + 1


def test_a_server_stops_while_it_asks(harness):
    fabric = Fabric()
    held, decode = MooncakePrefill(harness, fabric), MooncakeDecode(harness, fabric)
    gate = held.worker.gate()

    def wait(connection):
        gate.wait()
        connection.ending()

    held.query = wait
    router = mooncake_router(harness, [held], [decode], health_check_timeout_secs=100)
    gate.wait_for_someone()
    router.shutdown()
    router.must_end()
    gate.open()
