"""cpp/proxy/server/server_signals.h: what a request finds out about a worker, a service follows up."""


def test_a_worker_that_refuses_a_connection_is_checked_at_once(harness):
    worker = harness.worker()
    router = harness.router(worker, health_check_interval_secs=3600, health_failure_threshold=1)
    client = harness.client(router)
    assert client.ask().status == 200
    worker.stop()
    assert client.ask().status == 502
    router.wait_until_unhealthy(worker)
