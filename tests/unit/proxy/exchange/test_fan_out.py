"""cpp/proxy/exchange/fan_out.h: many responses as one; tests/proxy/test_fan_out.py has the workers."""

import json

from vllm_router import _core_testing as testing


def merge(*responses):
    named = [(f"http://gpu-{number}", *response) for number, response in enumerate(responses)]
    status, body, code = testing.merge_fan_out(named)
    return status, json.loads(body), code


def test_what_all_say_alike_is_said_once_more_at_the_top():
    status, body, code = merge(
        (200, '{"success": true, "paused": 1}'), (200, '{"success": true, "paused": 2}\n')
    )
    assert (status, code) == (200, "")
    assert body == {
        "success": True,
        "workers": [
            {"worker": "http://gpu-0", "status": 200, "body": {"success": True, "paused": 1}},
            {"worker": "http://gpu-1", "status": 200, "body": {"success": True, "paused": 2}},
        ],
    }


def test_a_body_that_is_not_json_is_a_string():
    status, body, _ = merge((200, "Success"), (204, ""), (200, b"\xff".decode("latin-1")))
    assert status == 200
    assert [row["body"] for row in body["workers"]] == ["Success", "", "\xff"]
    assert set(body) == {"workers"}


def test_some_did_it():
    status, body, code = merge((200, '{"success": true}'), (500, '{"success": false}'), (0, "refused"))
    assert (status, code, body["success"]) == (207, "", True)
    assert body["workers"][2] == {"worker": "http://gpu-2", "status": 0, "error": "refused"}


def test_none_did():
    status, body, code = merge((500, "{}"), (0, "refused"))
    assert (status, code) == (502, "fan_out_failed")
    assert body["error"]["code"] == "fan_out_failed"
    assert [row["status"] for row in body["workers"]] == [500, 0]


def test_a_request_that_all_reject_alike_is_to_blame():
    status, body, code = merge((404, '{"detail": "Not Found"}'), (404, '{"detail": "Not Found"}'))
    assert (status, code, body["detail"]) == (404, "", "Not Found")
    assert merge((404, "{}"), (400, "{}"))[0] == 502


def test_a_member_called_workers_does_not_hide_ours():
    _, body, _ = merge((200, '{"workers": 3}'))
    assert [row["body"] for row in body["workers"]] == [{"workers": 3}]
