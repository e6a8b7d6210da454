"""cpp/proxy/exchange/attempt_record.h: what the access log says of attempts."""

import json

from tests.fakes.wire import eventually, response
from vllm_router import _core


def test_a_failed_attempt_is_a_row_of_the_record_and_its_times_are_those_of_the_last(harness, written_to):
    def busy(connection, _message):
        connection.send(response(503, b""))

    failing, serving = harness.worker(busy), harness.worker()
    _core.configure_log(log_format="json")
    try:
        stdout = written_to(1)
        on = {"disable_retries": False, "retry_initial_backoff_ms": 1}
        router = harness.router(failing, serving, access_log=True, **on)
        client = harness.client(router)
        count = 0
        while not failing.requests:
            assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
            count += 1
        eventually(lambda: stdout().count('"request_id"') == count, "a line is missing")
        lines = [json.loads(each) for each in stdout().splitlines() if '"request_id"' in each]
    finally:
        _core.configure_log()
    last = lines[-1]
    assert (last["worker"], last["attempts"], last["status"]) == (serving.url, 2, 200)
    assert last["failed"] == [{"worker": failing.url, "status": 503}]
    assert 0 <= last["head_ms"] <= last["total_ms"]
    assert all("failed" not in line for line in lines[:-1])
