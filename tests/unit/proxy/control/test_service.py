"""cpp/proxy/control/service.h: services start with the server and have ended when it has."""

from tests.fakes.wire import eventually, response


def test_a_server_that_stops_waits_for_no_poll(harness):
    polled = []

    def silent(connection, message):
        polled.append(message.target)
        connection.ending()  # no response

    worker = harness.worker(silent)
    router = harness.router(
        worker, health_check_interval_secs=3600, load_poll_interval_secs=0.05, policy="auto"
    )
    eventually(lambda: {"/health", "/metrics"} <= set(polled))
    router.shutdown()
    router.must_end()


def test_a_second_server_of_the_same_router_has_services_of_its_own(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"")))
    for _ in range(2):
        seen = len(worker.requests)
        router = harness.router(worker, health_check_interval_secs=1)
        eventually(lambda before=seen: len(worker.requests) > before)
        router.shutdown()
        router.must_end()
