"""cpp/proxy/exchange/body_edits.h: what a worker gets of a body that is edited."""

import pytest

BODY = b'{"kv_transfer_params":1,"system":"hi","x":3}'
STRIPPED = b'{"system":"hi","x":3}'
MARKED = b'"system":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]'
STRIPS = {"pd_strip_client_params": "always"}
MARKS = {"anthropic_cache_control_injection": True}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, BODY, id="none"),
        pytest.param(STRIPS, STRIPPED, id="stripped"),
        pytest.param(MARKS, BODY.replace(b'"system":"hi"', MARKED), id="inserted"),
        pytest.param({**STRIPS, **MARKS}, STRIPPED.replace(b'"system":"hi"', MARKED), id="both"),
    ],
)
def test_a_worker_gets_the_last_edit(harness, settings, expected):
    worker = harness.worker()
    client = harness.client(harness.router(worker, **settings))
    assert client.ask("POST", "/v1/messages", body=BODY).status == 200
    assert [message.body for message in worker.requests if message.method == "POST"] == [expected]


def test_a_body_without_such_members_is_sent_as_it_came(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, **STRIPS))
    assert client.ask("POST", "/v1/messages", body=b'{ "x" : 3 }').status == 200
    assert worker.requests[-1].body == b'{ "x" : 3 }'
