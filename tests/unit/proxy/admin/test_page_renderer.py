"""cpp/proxy/admin/page_renderer.h: renders that are shared, and what becomes of their readers. Row 58."""

import json
import threading

from tests.fakes.harness import error_of
from tests.fakes.pages import fleet, renders
from tests.fakes.wire import eventually, request
from vllm_router import _core_testing as testing


def test_all_who_wait_share_a_render_and_get_whole_pages(harness):
    router = harness.router(*fleet(harness, 64), threads=2)
    clients = [harness.client(router) for _ in range(100)]
    for client in clients:
        client.send(request("GET", "/workers") * 3)
    for client in clients:
        for _ in range(3):
            assert json.loads(client.read_response().body)["total"] == 64
    assert 3 <= renders(router, "/workers") < 150


def test_nobody_gets_a_page_from_before_the_request(harness):
    """Whoever changes something and looks sees it, however many others look at the same time."""
    router = harness.router(*fleet(harness, 20), threads=2)
    over = threading.Event()

    def look(client):
        while not over.is_set():
            assert client.ask("GET", "/list_workers").status == 200

    threads = [threading.Thread(target=look, args=(harness.client(router),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    client = harness.client(router)
    try:
        for left in range(19, 4, -1):
            url = json.loads(client.ask("GET", "/list_workers").body)["urls"][0]
            assert client.ask("POST", f"/remove_worker?url={url}").status == 200
            urls = json.loads(client.ask("GET", "/list_workers").body)["urls"]
            assert (len(urls), url in urls) == (left, False)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_pages_with_different_parameters_are_different_pages(harness):
    router = harness.router(harness.worker(), threads=2, response_cache=True)
    eventually(lambda: harness.client(router).ask("GET", "/scale?model=a").status == 404)
    clients = {name: harness.client(router) for name in ("a", "b", "c")}
    for _ in range(10):
        for name, client in clients.items():
            client.send(request("GET", f"/scale?model={name}"))
        for name, client in clients.items():
            assert f'"{name}"' in error_of(client.read_response())["message"]
    plain, whole = harness.client(router), harness.client(router)
    plain.send(request("GET", "/admin/response-cache/stats"))
    whole.send(request("GET", "/admin/response-cache/stats?detail=1"))
    assert "detail" not in json.loads(plain.read_response().body)
    assert "detail" in json.loads(whole.read_response().body)


def test_a_client_that_leaves_ends_its_own_wait_only(harness):
    router = harness.router(*fleet(harness, 64))
    stays = harness.client(router)
    for _ in range(10):
        leaves = harness.client(router)
        leaves.send(request("GET", "/metrics"))
        stays.send(request("GET", "/metrics"))
        leaves.close()
        assert stays.read_response().status == 200
    assert stays.ask("GET", "/liveness").status == 200


def test_whoever_reads_an_old_page_slowly_is_cut_when_old_ones_become_many(harness):
    """Each of these clients keeps a page of its own; the last one, and whoever reads it, is never cut."""
    router = harness.router(*fleet(harness, 4096))  # a page is more than the kernel takes
    most = testing.set_max_page_bytes(3_000_000)
    slow = []
    try:
        reader = harness.client(router)
        while b"pages_cut_total 0\n" in router.server.metrics_text().encode():
            slow.append(harness.client(router, receive_buffer=4096))
            slow[-1].send(request("GET", "/metrics"))
            before = renders(router, "/metrics")
            assert reader.ask("GET", "/metrics").status == 200
            assert renders(router, "/metrics") > before
            assert len(slow) < 20
        assert any(client.ending() == "reset" for client in slow[:3])
        assert reader.ask("GET", "/metrics").status == 200
    finally:
        testing.set_max_page_bytes(most)
