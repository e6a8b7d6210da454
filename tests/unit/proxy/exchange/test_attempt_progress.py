"""cpp/proxy/exchange/attempt_progress.h: waits for a first byte, and first bytes, show which worker hangs."""

from tests.proxy.test_hanging_workers import clients_at, in_doubt, serve_until, two_engines


def test_requests_that_do_not_stream_are_compared_with_their_like(harness):
    (hung, other), router, client = two_engines(harness, stream=False)
    waiting = clients_at(harness, router, hung, stream=False)
    serve_until(client, other, lambda: in_doubt(router, hung), stream=False)
    assert not in_doubt(router, other)
    hung.gate.open()
    assert [each.read_response().status for each in waiting] == [200, 200]
