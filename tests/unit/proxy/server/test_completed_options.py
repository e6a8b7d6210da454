"""cpp/proxy/server/completed_options.h: what settings leave to the policy."""

import pytest

from tests.fakes.wire import eventually


@pytest.mark.parametrize(
    "options",
    [
        {"policy": "power_of_two", "worker_startup_check_interval": 1},
        {"policy": "round_robin", "exclude_kv_above": 0.5},
        {"policy": "least_load", "admission_config": "class batch"},
    ],
    ids=lambda options: options["policy"],
)
def test_workers_are_polled_for_their_loads_where_something_goes_by_these(harness, options):
    worker = harness.worker()
    harness.router(worker, **options)
    eventually(lambda: any(message.target != "/health" for message in worker.requests))
