"""cpp/proxy/shared_pool/shared_pool_service.h: what the pool is, as workers and operators say."""

from tests.fakes.shared_pool import (
    MODEL,
    HicacheEngine,
    ask,
    errors,
    hit_rates,
    open_router,
    pool,
    server_info,
)
from tests.fakes.wire import eventually, response


def told(capfd, sentence):
    """The log has it; what was read is kept for the next look."""
    text = []

    def found():
        text.append(capfd.readouterr().err)
        return sentence in "".join(text)

    eventually(found, f"never logged: {sentence}")


def test_the_layout_of_the_option_needs_nothing_of_the_workers(harness, master):
    router = open_router(harness, master, harness.worker(HicacheEngine()), layout={"page_size": 32})
    assert pool(harness, router) == {
        "type": "hicache",
        "urls": [master.url],
        "layouts": ["<page>_0_k and 1 more", "<page>__k"],
        "page_size": 32,
        "paused": False,
        "hits": 0,
    }


def test_a_loopback_address_is_the_workers_own_host(harness, master):
    extra = {"master_server_address": "localhost:50051", "master_metrics_port": master.port}
    info = server_info(master, hicache_storage_backend_extra_config=extra)
    router = open_router(harness, None, harness.worker(HicacheEngine(info)), layout=None)
    assert pool(harness, router)["urls"] == [master.url]


def test_no_worker_has_hicache(harness, master, capfd):
    router = open_router(harness, master, harness.worker(HicacheEngine()), layout=None, ready=False)
    told(capfd, "shared cache: no workers have HiCache enabled")
    assert ask(harness, router).status == 200
    assert master.queries == []
    assert errors(router, "layout") == 1


def test_workers_that_disagree_turn_it_off(harness, master, capfd):
    workers = [
        harness.worker(HicacheEngine(server_info(master))),
        harness.worker(HicacheEngine(server_info(master, page_size=32))),
    ]
    open_router(harness, None, *workers, layout=None, ready=False)
    told(capfd, "differ (GET /server_info), and a page must have the same keys everywhere")


def test_a_worker_without_hicache_among_others_turns_it_off(harness, master, capfd):
    workers = [harness.worker(HicacheEngine(info)) for info in (server_info(master), {"page_size": 16})]
    open_router(harness, None, *workers, layout=None, ready=False)
    told(capfd, "differ (GET /server_info)")


def test_sizes_that_do_not_divide_each_other_turn_it_off(harness, master, capfd):
    worker = harness.worker(HicacheEngine(server_info(master, page_size=24)))
    open_router(harness, None, worker, layout=None, ready=False)
    told(capfd, "HiCache page size mismatch: worker 24, router 16")


def test_a_model_name_that_cannot_be_a_key_turns_it_off(harness, master, capfd):
    worker = harness.worker(HicacheEngine(server_info(master, model_path="org/m:v1")))
    open_router(harness, None, worker, layout=None, ready=False)
    told(capfd, 'cannot be used: the model\'s name is "org-m:v1"')


def test_nothing_names_the_master(harness, master, capfd):
    info = server_info(master, hicache_storage_backend_extra_config=None)
    open_router(harness, None, harness.worker(HicacheEngine(info)), layout=None, ready=False)
    told(capfd, "nothing names the Mooncake master; set --shared-cache-url")


def test_policies_that_do_not_read_it_query_nothing(harness, capfd):
    harness.router(harness.worker(), policy="auto", shared_cache_type="hicache")
    told(capfd, "shared cache: the policy auto does not read it")


def test_prompts_for_an_unknown_model_are_not_queried(harness, master):
    router = open_router(harness, master, harness.worker(HicacheEngine()))
    for model in ("other", MODEL, "alias"):
        assert ask(harness, router, model=model).status == 200
    assert hit_rates(router)[0] == 1


def test_the_model_of_the_option_needs_no_worker_to_name_it(harness, master, capfd):
    def nameless(connection, message):
        connection.send(response(404 if message.method == "GET" else 200, b"{}"))

    router = open_router(harness, master, harness.worker(nameless), kv_event_model="alias")
    assert ask(harness, router, model="alias").status == 200
    assert hit_rates(router)[0] == 1
    open_router(harness, master, harness.worker(nameless), ready=False)
    told(capfd, "no worker names its model (GET /v1/models); name it with --kv-event-model")
