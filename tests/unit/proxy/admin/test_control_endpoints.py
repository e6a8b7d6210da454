"""cpp/proxy/admin/control_endpoints.h: arguments of calls to the control plane."""

import pytest

from tests.fakes.harness import error_of


@pytest.mark.parametrize("query", ["dry-run=1", "dry_run", "dry_run=2", "dry_run=1&dry_run=1"])
def test_a_reload_with_an_argument_that_is_misspelt_reloads_nothing(harness, query):
    answer = harness.client(harness.router()).ask("POST", f"/admin/reload?{query}")
    assert answer.status == 400
    assert "dry_run" in error_of(answer)["message"]


def test_the_source_whose_list_is_adopted_must_be_named(harness):
    client = harness.client(harness.router())
    assert client.ask("POST", "/admin/discovery/adopt").status == 400
    assert client.ask("POST", "/admin/discovery/adopt?source=x").status == 404
