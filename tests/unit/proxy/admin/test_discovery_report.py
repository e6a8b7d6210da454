"""cpp/proxy/admin/discovery_report.h: GET /admin/discovery, its metrics, and who is waited for."""

import json
import re

import pytest

from tests.fakes.wire import eventually
from vllm_router.discovery import WorkerSpec


def report(client):
    answer = client.ask("GET", "/admin/discovery")
    assert answer.status == 200
    return json.loads(answer.body)


def declare(router, *urls, source="file", labels=None):
    specs = [WorkerSpec(url, labels=labels or {}) for url in urls]
    return router.core._reconcile(source, specs, True, [])


def metrics(router):
    text = router.server.metrics_text()
    return dict(re.findall(r"^vllm_router_((?:discovery|fleet_changes)\S+) (\S+)$", text, re.MULTILINE))


def test_every_worker_is_shown_with_its_sources(harness):
    static, listed = harness.worker(), harness.worker()
    router = harness.router(static)
    client = harness.client(router)
    declare(router, listed.url, static.url, labels={"pod": "default/a"})
    eventually(lambda: len(router.core.workers) == 2)
    said = report(client)
    assert [(one["url"], one["state"], one["sources"], one["detail"]) for one in said["workers"]] == [
        (static.url, "serving", ["static", "file"], ""),
        (listed.url, "serving", ["file"], "pod=default/a"),
    ]
    assert all(one["seconds"] >= 0 for one in said["workers"])
    (source,) = said["sources"]
    assert source.pop("seconds_since_list") >= 0
    assert source == {
        "source": "file",
        "listed": True,
        "syncs": 1,
        "errors": {},
        "last_error": None,
        "joined": 1,
        "left": 0,
        "changed": 0,
        "held": 0,
    }


def test_the_last_declaration_is_shown_and_a_detail_changes_nothing(harness):
    worker = harness.worker()
    router = harness.router()
    client = harness.client(router)
    declare(router, worker.url, labels={"pod": "default/a"})
    eventually(lambda: len(router.core.workers) == 1)
    (before,) = report(client)["workers"]
    assert declare(router, worker.url + "/", labels={"pod": "default/b"}) == ([], [], [], [])
    (after,) = report(client)["workers"]
    assert (before["detail"], after["detail"]) == ("pod=default/a", "pod=default/b")
    assert (before["url"], after["url"]) == (worker.url, worker.url)
    assert report(client)["sources"][0]["changed"] == 0


def test_without_sources_there_is_nothing_but_the_workers(harness):
    worker = harness.worker()
    router = harness.router(worker)
    said = report(harness.client(router))
    assert said["sources"] == []
    assert [one["sources"] for one in said["workers"]] == [["static"]]
    assert metrics(router) == {}


def test_errors_are_counted_by_kind_until_a_list_comes(harness):
    router = harness.router()
    client = harness.client(router)
    for kind in ["invalid", "invalid", "unreadable"]:
        router.core._report_source("file", kind, f"line 3 is {kind}")
    (source,) = report(client)["sources"]
    assert source["errors"] == {"invalid": 2, "unreadable": 1}
    assert (source["last_error"], source["listed"]) == ("line 3 is unreadable", False)
    assert metrics(router)['discovery_errors_total{source="file",kind="invalid"}'] == "2"
    assert metrics(router)['discovery_last_success_timestamp_seconds{source="file"}'] == "0"
    declare(router)
    (source,) = report(client)["sources"]
    assert (source["last_error"], source["listed"], source["errors"]["invalid"]) == (None, True, 2)
    assert float(metrics(router)['discovery_last_success_timestamp_seconds{source="file"}']) > 1e9


def test_the_kinds_of_errors_are_bounded(harness):
    router = harness.router()
    for number in range(100):
        router.core._report_source("file", f"kind_{number}", "x" * 10_000)
    (source,) = report(harness.client(router))["sources"]
    assert len(source["errors"]) == 17
    assert source["errors"]["other"] == 84
    assert len(source["last_error"]) == 500


def test_readiness_names_the_source_that_is_waited_for(harness):
    worker = harness.worker()
    router = harness.router()
    client = harness.client(router)

    def reason():
        return json.loads(client.ask("GET", "/readiness").body)["reason"]

    assert reason() == "no healthy workers available"
    router.core._report_source("kubernetes", "", "")
    assert reason() == "waiting for kubernetes"
    router.core._report_source("kubernetes", "forbidden", "403 for pods")
    assert reason() == "waiting for kubernetes: 403 for pods"
    declare(router, worker.url, source="kubernetes")
    eventually(lambda: client.ask("GET", "/readiness").status == 200)


def test_the_metrics_count_workers_by_source_and_state(harness):
    workers = [harness.worker() for _ in range(3)]
    router = harness.router(workers[0])
    declare(router, *(worker.url for worker in workers[1:]), source="dns")
    eventually(lambda: len(router.core.workers) == 3)
    declare(router, source="dns")
    shown = metrics(router)
    assert shown['discovery_workers{source="static",state="serving"}'] == "1"
    assert shown['discovery_workers{source="dns",state="held"}'] == "2"
    assert shown['discovery_workers{source="dns",state="serving"}'] == "0"
    assert shown['discovery_held{source="dns"}'] == "2"
    assert shown['discovery_syncs_total{source="dns"}'] == "2"
    assert shown['fleet_changes_total{source="dns",change="joined"}'] == "2"
    assert shown['fleet_changes_total{source="dns",change="left"}'] == "0"


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("", b"'source' is missing"),
        ("?source=", b"'source' is missing"),
        ("?source=dns", b"there are: file"),
        ("?source=file&source=dns", b"more than once"),
    ],
)
def test_a_mistake_in_adopt_is_named(harness, query, what):
    router = harness.router()
    declare(router)
    answer = harness.client(router).ask("POST", "/admin/discovery/adopt" + query)
    assert answer.status in (400, 404)
    assert what in answer.body


@pytest.mark.parametrize("source", ["api", "", "Pods", "a" * 33, "a b", "9"])
def test_the_name_of_a_source_is_checked(harness, source):
    router = harness.router()
    with pytest.raises(ValueError, match="the source of workers is"):
        declare(router, source=source)
