"""cpp/proxy/control/model_service.h: when workers are polled for their models, and what that changes."""

import pytest

from tests.fakes.models import ModelWorker, listed, wait_until_known
from tests.fakes.wire import eventually, wait_until_logged

QUICK = {"model_refresh_secs": 0.02}


def test_each_host_is_polled_at_once_and_again_and_its_ranks_together(harness):
    worker = ModelWorker(harness, "a")
    router = harness.router(f"{worker.url}@0", f"{worker.url}@1", **QUICK, api_key="key")
    wait_until_known(router, 1)
    eventually(lambda: worker.lists > 5)
    assert {message.get("authorization") for message in worker.worker.requests} == {"Bearer key"}


def test_zero_polls_nothing(harness):
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, model_refresh_secs=0)
    assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    assert (worker.lists, listed(router)) == (0, 0)


def test_a_host_that_fails_is_polled_again_soon(harness):
    worker = ModelWorker(harness, "a")
    worker.status = 503
    router = harness.router(worker, model_refresh_secs=3600)
    eventually(lambda: worker.lists == 1)
    worker.status = 200
    wait_until_known(router, 1)


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b'{"data": 1}', b"x" * (1 << 20) + b"y"])
def test_what_is_no_list_changes_nothing_and_is_said_once(harness, capfd, raw):
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, **QUICK)
    wait_until_known(router, 1)
    worker.raw = raw
    wait_until_logged(capfd, f"models: worker {worker.url} ")
    lists = worker.lists
    eventually(lambda: worker.lists > lists + 3)
    assert listed(router) == 1
    worker.raw = None
    worker.cards["b"] = None
    wait_until_known(router, 2)


def test_an_empty_list_is_no_model_and_is_logged(harness, capfd):
    worker = ModelWorker(harness, "a")
    router = harness.router(worker, ModelWorker(harness, "b"), **QUICK)
    wait_until_known(router, 2)
    worker.cards.clear()
    wait_until_known(router, 1)
    wait_until_logged(capfd, "lists no models")


def test_names_beyond_the_limits_are_left_out_with_a_warning(harness, capfd):
    worker = ModelWorker(harness, *(f"m{n}" for n in range(1030)))
    router = harness.router(worker, **QUICK)
    wait_until_known(router, 1024)
    wait_until_logged(capfd, "lists 1030 models, of which 6 are not kept")


def test_a_joining_worker_that_never_lists_its_models_joins_all_the_same(harness):
    router = harness.router(**QUICK, health_check_interval_secs=0.02)
    worker = ModelWorker(harness, "a")
    worker.status = 500
    router.core._reconcile(
        "file", [(worker.url, 1.0, True, False, None, "", 0, "", [], "regular", None, "")], True, []
    )
    eventually(lambda: len(router.core.workers) == 1)
    assert worker.lists >= 3


def test_another_pod_on_the_same_address_is_asked_before_it_joins(harness):
    """What the former one listed does not count."""
    router = harness.router(model_refresh_secs=3600, health_check_interval_secs=0.02)
    worker = ModelWorker(harness, "a")
    row = (worker.url, 1.0, True, False, None, "1", 0, "", [], "regular", None, "")
    router.core._reconcile("file", [row], True, [])
    wait_until_known(router, 1)
    worker.cards = {"b": None, "c": None}
    router.core._reconcile("file", [(*row[:5], "2", *row[6:])], True, [])
    wait_until_known(router, 2)


def test_a_server_ends_while_a_worker_is_polled(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, model_refresh_secs=1, health_check_timeout_secs=100)
    worker.wait_for_requests(1)
    router.shutdown()
    router.must_end()
