"""cpp/worker/response_code.h: what a status says of a worker."""

from tests.models import recent_outcomes as slow
from vllm_router import _core_testing as testing


def test_statuses_by_which_workers_refuse_are_told_apart():
    names = {status: testing.response_code(status) for status in range(-1, 700)}
    assert set(names.values()) == {"1xx", "2xx", "3xx", "401", "403", "404", "429", "4xx", "5xx", "none"}
    assert all(name == slow.code(status) for status, name in names.items())
