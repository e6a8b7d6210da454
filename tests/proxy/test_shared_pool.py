"""A pool that workers share, end to end: what the router asks its master, and where requests go by it."""

import json

import pytest

from tests.fakes.shared_pool import (
    COMPLETIONS,
    LAYOUT,
    MODEL,
    TOKENS,
    HicacheEngine,
    ask,
    beyond,
    client_of,
    errors,
    figure,
    hit_rates,
    open_router,
    pool,
    server_info,
)
from tests.fakes.wire import eventually, request
from tests.fakes.worker import Gate
from vllm_router.testing import FakeMooncakeMaster


def test_a_prompts_pages_are_queried_and_counted(harness, master):
    pages = master.store(TOKENS[:32], page_size=16)
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    assert ask(harness, router).status == 200
    own = [page[0] for page in master.keys_of(TOKENS, 16)]
    assert master.queries == [own, [pages[1][1]]]  # the first object of each page, then the rest of the edge
    assert hit_rates(router) == (1, 0.5)
    eventually(lambda: beyond(router) == (1, 2), "the blocks beyond are not counted")
    assert figure(router, "vllm_router_shared_cache_keys_total", 'result="found"') == 3
    assert figure(router, "vllm_router_shared_cache_keys_total", 'result="missing"') == 2
    assert figure(router, "vllm_router_shared_cache_query_seconds_count") == 1


@pytest.mark.parametrize(("multiplier", "to_the_holder"), [(0.0, True), (1.0, False)])
def test_the_pool_counts_against_a_worker_that_holds_less(harness, master, multiplier, to_the_holder):
    engine = HicacheEngine()
    engine.hold = Gate()
    workers = [harness.worker(engine), harness.worker(engine)]
    master.store(TOKENS, page_size=16)
    router = open_router(harness, master, *workers, multiplier=multiplier)
    # One worker has half of the prompt on its GPU, and an open request.
    holder = ask(harness, router, TOKENS[:32]).get("x-vllm-router-worker")
    busy = harness.client(router)
    body = {"model": MODEL, "prompt": [*TOKENS[:32], 8], "user": "wait"}
    busy.send(request("POST", COMPLETIONS, body=json.dumps(body).encode()))
    engine.hold.wait_for_someone()
    found = ask(harness, router).get("x-vllm-router-worker")
    engine.hold.open()
    assert busy.read_response().status == 200
    assert (found == holder) == to_the_holder


def test_a_multiplier_of_zero_queries_for_the_metrics_and_waits_for_nothing(harness, master):
    master.store(TOKENS, page_size=16)
    master.set_faults(delay_ms=1_000)
    router = open_router(harness, master, harness.worker(HicacheEngine()), multiplier=0.0)
    assert ask(harness, router).status == 200
    assert hit_rates(router) == (0, 0)
    eventually(lambda: hit_rates(router) == (1, 1.0))
    assert beyond(router) == (0, 0)


def test_an_override_of_one_request_waits(harness, master):
    master.store(TOKENS, page_size=16)
    worker = harness.worker(HicacheEngine())
    router = open_router(harness, master, worker, multiplier=0.0, allow_request_overrides=True)
    body = json.dumps({"model": MODEL, "prompt": [*TOKENS, 7]}).encode()
    override = ("x-vllm-router-override", '{"shared_cache_multiplier": 0.5}')
    assert client_of(harness, router).ask("POST", COMPLETIONS, override, body=body).status == 200
    eventually(lambda: beyond(router) == (1, 4), "the blocks beyond are not counted")


def test_a_prompt_seen_a_moment_before_needs_no_query(harness, master):
    master.store(TOKENS[:32], page_size=16)
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    ask(harness, router)
    before = len(master.queries)
    # What is there is known for a second, what is not for a fifth of one: a prompt of what is there.
    ask(harness, router, TOKENS[:32])
    assert len(master.queries) == before
    assert figure(router, "vllm_router_shared_cache_keys_total", 'result="cached"') == 2
    assert hit_rates(router) == (2, 1.5)


@pytest.mark.parametrize(
    "body",
    [
        {"model": "adapter"},
        {"cache_salt": "s"},
        {"prompt": TOKENS[:15]},
        {"prompt": "text", "model": "adapter"},
    ],
)
def test_prompts_without_pages_are_not_queried(harness, master, body):
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    assert ask(harness, router, **body).status == 200
    assert master.queries == []


def test_embeddings_are_not_queried(harness, master):
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    body = json.dumps({"model": MODEL, "input": [*TOKENS, 7]}).encode()
    assert client_of(harness, router).ask("POST", "/v1/embeddings", body=body).status == 200
    assert master.queries == []


def test_text_is_tokenized_by_a_worker_while_decisions_read_the_pool(harness, master):
    engine = HicacheEngine()
    master.store(TOKENS, page_size=16)
    router = open_router(harness, master, harness.worker(engine), tokenize_timeout_ms=5_000)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 20}]}
    found = client_of(harness, router).ask("POST", "/v1/chat/completions", body=json.dumps(body).encode())
    assert found.status == 200
    assert engine.tokenized == 1
    assert hit_rates(router) == (1, 1.0)


def test_holes_and_replicas_that_are_being_written(harness, master):
    pages = master.store(TOKENS, page_size=16)
    master.remove(pages[1])
    master.remove(pages[3])
    master.add(pages[3], being_written=True)
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    ask(harness, router)
    assert hit_rates(router) == (1, 0.5)


def test_all_queries_every_object_of_every_page(harness, master):
    pages = master.store(TOKENS, page_size=16)
    master.remove(pages[1][1:])
    router = open_router(harness, master, harness.worker(HicacheEngine()), shared_cache_verify="all")
    ask(harness, router)
    assert master.queries == [[key for page in pages for key in page]]
    assert hit_rates(router) == (1, 0.75)


@pytest.mark.parametrize(("page", "share"), [(64, 1.0), (32, 1.0), (8, 0.75)])
def test_pages_of_other_sizes_become_blocks(harness, master, page, share):
    pages = master.store(TOKENS, page_size=page)
    if page == 8:
        master.remove(pages[-1])
    router = open_router(
        harness, master, harness.worker(HicacheEngine()), layout={**LAYOUT, "page_size": page}
    )
    ask(harness, router)
    assert hit_rates(router) == (1, share)


def test_long_prompts_take_several_queries(harness, master):
    tokens = list(range(16 * 70))
    master.store(tokens, page_size=16)
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    ask(harness, router, tokens)
    assert sorted(len(keys) for keys in master.queries) == [1, 6, 64]  # the two long ones at once
    assert hit_rates(router) == (1, 1.0)


def test_what_is_known_at_the_deadline_counts(harness, master):
    tokens = list(range(16 * 64 * 6))
    master.store(tokens, page_size=16)
    router = open_router(harness, master, harness.worker(HicacheEngine()), shared_cache_timeout_ms=2_000)
    master.set_faults(delay_ms=20_000, after=4)
    assert ask(harness, router, tokens).status == 200
    assert hit_rates(router) == (1, round(4 / 6, 3))
    # The master is well: five such failures paused the queries of all prompts.
    assert errors(router, "timeout") == 0


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({"status": 400}, "http"),
        ({"status": 500}, "http"),
        ({"status": 503}, "not_leader"),
        ({"body": b"{"}, "json"),
        ({"body": b'{"success":false}'}, "json"),
    ],
)
def test_a_failure_is_counted_and_costs_nothing_else(harness, master, capfd, faults, reason):
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    master.set_faults(**faults)
    for _ in range(2):
        assert ask(harness, router).status == 200
    assert errors(router, reason) == 2
    assert hit_rates(router) == (0, 0)
    assert beyond(router) == (0, 0)
    lines = [line for line in capfd.readouterr().err.splitlines() if "Shared cache query failed" in line]
    assert len(lines) == 1
    assert f"{master.url}: " in lines[0]
    assert lines[0].endswith("; routing without it")


def test_a_master_that_is_down(harness):
    with FakeMooncakeMaster() as gone:
        pass
    router = open_router(harness, gone, harness.worker(HicacheEngine()))
    assert ask(harness, router).status == 200
    assert errors(router, "connect") == 1


def test_five_failures_in_a_row_pause_the_queries(harness, master):
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    master.set_faults(status=500)
    for _ in range(7):
        assert ask(harness, router).status == 200
    assert len(master.queries) == 5
    assert pool(harness, router)["paused"]


def test_a_standby_leads_to_the_next_address(harness, master):
    master.store(TOKENS, page_size=16)
    with FakeMooncakeMaster() as standby:
        standby.set_faults(status=503)
        router = open_router(
            harness, master, harness.worker(HicacheEngine()), shared_cache_url=[standby.url, master.url]
        )
        ask(harness, router)
        assert hit_rates(router) == (1, 1.0)
        assert errors(router, "not_leader") == 1
        ask(harness, router, TOKENS[:48])
        assert len(standby.queries) == 1  # the active one is asked first from now on


def test_a_master_that_does_not_respond_leads_to_the_next_address(harness, master):
    """Only a refused connection and 503 did, so a master without power was queried for ever."""
    master.store(TOKENS, page_size=16)
    with FakeMooncakeMaster() as silent:
        silent.set_faults(delay_ms=60_000)
        router = open_router(
            harness,
            master,
            harness.worker(HicacheEngine()),
            shared_cache_url=[silent.url, master.url],
            shared_cache_timeout_ms=50,
        )
        assert ask(harness, router).status == 200
        assert errors(router, "timeout") == 1
        eventually(lambda: ask(harness, router).status == 200 and hit_rates(router)[1] > 0)
        assert len(silent.queries) == 1


def test_a_client_that_leaves_ends_its_query(harness, master):
    master.set_faults(delay_ms=20_000)
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    client = harness.client(router)
    body = json.dumps({"model": MODEL, "prompt": [*TOKENS, 7]}).encode()
    client.send(request("POST", COMPLETIONS, body=body))
    eventually(lambda: len(master.queries) == 1)
    client.close()
    eventually(lambda: router.in_flight() == 0)
    assert errors(router, "timeout") == 0


def test_workers_tell_the_layout_and_the_first_page_found_settles_it(harness, master, capfd):
    workers = [harness.worker(HicacheEngine(server_info(master))) for _ in range(2)]
    router = open_router(harness, None, *workers, layout=None)
    assert pool(harness, router)["urls"] == [master.url]
    assert len(pool(harness, router)["layouts"]) == 4
    ask(harness, router)
    first = master.keys_of(TOKENS, 16)[0][0].removesuffix("_0_k")
    assert master.queries == [[f"org-m_{first}_0_k", f"org-m_{first}__k", f"{first}_0_k", f"{first}__k"]]
    master.store(TOKENS, page_size=16, prefix="org-m_", suffixes=("__k",))
    ask(harness, router)
    assert pool(harness, router)["layouts"] == ["org-m_<page>__k"]
    assert "shared cache: pages are kept as org-m_<page>__k" in capfd.readouterr().err
    assert hit_rates(router) == (2, 1.0)


def test_metrics_have_no_pool_without_one(harness):
    router = harness.router(harness.worker(), policy="kv_logit")
    assert "shared_cache" not in router.server.metrics_text()
