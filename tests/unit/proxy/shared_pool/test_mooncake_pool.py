"""cpp/proxy/shared_pool/mooncake_pool.h; tests/proxy/test_shared_pool.py has more, end to end."""

import json

from tests.fakes.shared_pool import (
    COMPLETIONS,
    MODEL,
    HicacheEngine,
    ask,
    client_of,
    errors,
    hit_rates,
    open_router,
    pool,
)
from tests.fakes.wire import eventually


def test_after_a_thousand_queries_without_a_hit_the_layouts_are_listed(harness, master, capfd):
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    client = client_of(harness, router)
    for number in range(1001):
        body = json.dumps({"model": MODEL, "prompt": [number] * 17}).encode()
        assert client.ask("POST", COMPLETIONS, body=body).status == 200
    assert hit_rates(router) == (1001, 0)
    lines = [line for line in capfd.readouterr().err.splitlines() if "none of 1000 prompts" in line]
    assert len(lines) == 1
    assert "whose keys are <page>_0_k and 1 more" in lines[0]


def test_a_learned_layout_is_learned_again_after_a_thousand_queries_without_a_hit(harness, master):
    master.store(range(16), page_size=16)
    router = open_router(harness, master, harness.worker(HicacheEngine()), layout={"page_size": 16})
    ask(harness, router, range(16))
    assert pool(harness, router)["layouts"] == ["<page>_0_k and 1 more"]
    for number in range(1000):
        ask(harness, router, [number] * 16)
    assert len(pool(harness, router)["layouts"]) == 2
    master.store(range(50, 66), page_size=16, suffixes=("__k",))
    ask(harness, router, range(50, 66))
    assert pool(harness, router)["layouts"] == ["<page>__k"]


def test_a_hit_counts(harness, master):
    master.store(range(16), page_size=16)
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    ask(harness, router, range(16))
    ask(harness, router, range(100, 116))
    assert pool(harness, router)["hits"] == 1


def test_background_queries_are_bounded_and_the_shutdown_waits_for_them(harness, master):
    master.set_faults(delay_ms=2_000)
    router = open_router(harness, master, harness.worker(HicacheEngine()), multiplier=0.0)
    for number in range(80):
        ask(harness, router, [number] * 16)
    eventually(lambda: hit_rates(router)[0] == 64)
    assert len(master.queries) == 64
    assert errors(router, "timeout") == 0


def test_a_query_in_the_background_is_ended_by_the_shutdown(harness, master, capfd):
    master.set_faults(delay_ms=1_000)
    router = open_router(harness, master, harness.worker(HicacheEngine()), multiplier=0.0)
    ask(harness, router)
    eventually(lambda: len(master.queries) == 1)
    router.close()
    router.server = None
    assert "Shared cache query failed" not in capfd.readouterr().err
