"""cpp/proxy/admin/model_endpoints.h: a model by its name. Lists are in tests/proxy/test_models.py."""

from tests.fakes.harness import error_of


def test_a_name_that_is_badly_encoded_is_quoted_back(harness):
    answer = harness.client(harness.router()).ask("GET", "/v1/models/a%zz")
    assert answer.status == 400
    assert '"a%zz"' in error_of(answer)["message"]
