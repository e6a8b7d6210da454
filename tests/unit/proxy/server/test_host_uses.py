"""cpp/proxy/server/host_uses.h: workers of one host are one row."""

from tests.fakes.wire import eventually, response


def test_what_hosts_have_to_do_and_what_their_caches_saved(harness):
    usage = b'{"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}'
    worker = harness.worker(lambda connection, _: connection.send(response(200, usage)))
    other = harness.worker()
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", other)
    client = harness.client(router)
    for _ in range(6):
        assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    ticket = router.core.select()
    eventually(lambda: sum(cached for _, _, cached in router.server.host_uses()) == 4 * 8)
    router.wait_for_load(1)
    uses = {url: (requests, cached) for url, requests, cached in router.server.host_uses()}
    is_at_worker = ticket.base_url == worker.url
    assert uses == {worker.url: (int(is_at_worker), 32), other.url: (int(not is_at_worker), 0)}
    ticket.finish()
