"""cpp/proxy/disaggregation/registration_report.h: /admin/discovery."""

import json


def test_a_server_where_no_workers_register_says_nothing_of_them(harness):
    client = harness.client(harness.router(harness.worker()))
    assert "registrations" not in json.loads(client.ask("GET", "/admin/discovery").body)
