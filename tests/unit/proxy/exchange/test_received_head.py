"""cpp/proxy/exchange/received_head.h: the head that steps and workers see."""

from tests.fakes.models import wait_until_known
from tests.fakes.wire import request, response


def test_a_path_and_a_query_are_replaced_together(harness):
    """Neither text is lost when the other one comes."""

    def answer(connection, message):
        models = b'{"data": [{"id": "a"}, {"id": "b"}]}'
        connection.send(response(200, models if message.target == "/tenant/v1/models" else b"{}"))

    worker = harness.worker(answer, path="/tenant")
    router = harness.router(worker, model_refresh_secs=3600, model_alias=["fast=b"])
    wait_until_known(router, 2)
    assert harness.client(router).ask("GET", "/v1/x/../files?model=fast&y=1").status == 200
    assert worker.requests[-1].target == "/tenant/v1/files?model=b&y=1"


def test_the_next_request_of_a_connection_has_the_parser_of_the_last(harness):
    """A head that was replaced leaves nothing behind, nor does one that was refused or that ended early."""
    worker = harness.worker(path="/tenant")
    client = harness.client(harness.router(worker))
    client.send(request("GET", "/a/../b") + request("GET", "/../c") + request("GET", "/d?x"))
    assert [client.read_response().status for _ in range(3)] == [200, 400, 200]
    assert [message.target for message in worker.requests] == ["/tenant/b", "/tenant/d?x"]
