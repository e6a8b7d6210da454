"""cpp/proxy/response_cache/cache_endpoints.h: a cache that is off, and one that is on."""

import json


def test_only_a_cache_that_is_on_can_be_invalidated(harness):
    off = harness.client(harness.router(harness.worker()))
    assert off.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}').status == 409
    on = harness.client(harness.router(harness.worker(), response_cache=True))
    assert on.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}').status == 200
    assert on.ask("POST", "/admin/response-cache/invalidate", body=b"{}").status == 400


def test_details_are_a_page_of_their_own(harness):
    client = harness.client(harness.router(harness.worker(), response_cache=True))
    plain = json.loads(client.ask("GET", "/admin/response-cache/stats").body)
    assert set(json.loads(client.ask("GET", "/admin/response-cache/stats?detail=1").body)) > set(plain)
