"""POST /finish_session: a session of sticky_least_loaded is over.

mending row 24: the policy and the endpoint were not there.
"""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import response

PATH = "/v1/completions"


def finished(session, *, known):
    """mending row 24: clients of the other router read `status` and `session_id`, which were not there."""
    return {"success": True, "known": known, "status": "ok", "session_id": session}


def test_a_session_stays_until_it_is_finished(harness):
    workers = [harness.worker(lambda connection, _: connection.send(response(200, b"{}"))) for _ in range(3)]
    router = harness.router(*workers, policy="manual")
    client = harness.client(router)
    for number in range(9):
        for _ in range(3):
            client.ask("POST", PATH, ("X-Session-ID", f"s {number}"), body=b"{}")
    assert [len(worker.requests) for worker in workers] == [9, 9, 9]
    assert "vllm_router_sessions 9\n" in router.server.metrics_text()
    for answer, known, session in [
        (client.ask("POST", "/finish_session?session_id=s%200", body=b""), True, "s 0"),
        (client.ask("POST", "/finish_session?session_id=s%200", body=b""), False, "s 0"),
        (client.ask("POST", "/finish_session", body=b'{"session_id": "s 1"}'), True, "s 1"),
        (client.ask("POST", "/finish_session?session_id=%ff%22", body=b""), False, '\ufffd"'),
    ]:
        assert answer.status == 200
        assert json.loads(answer.body) == finished(session, known=known)
    assert "vllm_router_sessions 7\n" in router.server.metrics_text()


def test_other_policies_have_no_sessions_to_finish(harness):
    router = harness.router(harness.worker(), policy="round_robin")
    answer = harness.client(router).ask("POST", "/finish_session?session_id=s", body=b"")
    assert json.loads(answer.body) == finished("s", known=False)
    assert "vllm_router_sessions 0\n" in router.server.metrics_text()


@pytest.mark.parametrize(
    ("query", "body"),
    [("", b""), ("", b"[]"), ("", b'{"session_id": 1}'), ("?session_id=", b""), ("?session_id=%4", b"")],
)
def test_which_session_has_to_be_said(harness, query, body):
    router = harness.router(harness.worker(), policy="sticky_least_loaded")
    answer = harness.client(router).ask("POST", f"/finish_session{query}", body=body)
    assert (answer.status, error_of(answer)["code"]) == (400, "invalid_argument")
    assert "session_id" in error_of(answer)["message"]


def test_clients_need_a_key_where_they_need_one(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    router = harness.router(harness.worker(), policy="sticky_least_loaded", client_api_key_file=str(keys))
    client = harness.client(router)
    assert client.ask("POST", "/finish_session?session_id=s", body=b"").status == 401
    key = ("Authorization", "Bearer secret")
    assert client.ask("POST", "/finish_session?session_id=s", key, body=b"").status == 200
