"""cpp/proxy/exchange/response_search.h: all hosts are asked for a stored response; tests/proxy/ has more."""

from tests.fakes.wire import response


def test_a_search_asks_each_host_once_with_the_path_alone(harness):
    def answer(connection, message):
        if connection.worker is holder and len(holder.requests) == 1:
            for other in workers[:2]:  # the first that has it ends the search
                other.wait_for_requests(1)
        has = connection.worker is holder and message.target.startswith("/v1/responses/resp_1")
        connection.send(response(200 if has else 404, b"{}"))

    workers = [harness.worker(answer) for _ in range(3)]
    holder = workers[2]
    router = harness.router(*workers)
    assert harness.client(router).ask("POST", "/v1/responses/resp_1/cancel?x=y", body=b"").status == 200
    for worker in workers:
        assert (worker.requests[0].method, worker.requests[0].target) == ("GET", "/v1/responses/resp_1")
        assert worker.requests[0].body == b""
    assert [message.target for message in holder.requests[1:]] == ["/v1/responses/resp_1/cancel?x=y"]
    assert [len(worker.requests) for worker in workers] == [1, 1, 2]


def test_ranks_are_one_host(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"{}")))
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1")
    client = harness.client(router)
    assert client.ask("GET", "/v1/responses/resp_1").status == 200
    assert len(worker.requests) == 2  # the search, and the request
