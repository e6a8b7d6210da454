"""cpp/proxy/dashboard/event_broadcaster.h: who gets which ticks."""

import json
import re

from tests.fakes.viewer import EVENTS
from tests.fakes.wire import eventually, response


def metric(router, name):
    found = re.search(rf"^vllm_router_{name} (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return float(found[1])


def test_a_viewer_gets_the_past(harness, view):
    router = harness.router(harness.worker())
    first = view(router)
    for _ in range(10):
        first.until("tick")
    history = view(router).until("hello")["history"]
    assert len(history) >= 10
    times = [point[0] for point in history]
    assert times == sorted(times)


def test_viewers_on_all_threads_get_the_same_ticks(harness, view):
    router = harness.router(harness.worker(), threads=3)
    viewers = [view(router) for _ in range(6)]
    wanted = max(viewer.until("tick")["point"][0] for viewer in viewers) + 0.001
    ticks = [viewer.until("tick", lambda tick: tick["point"][0] > wanted) for viewer in viewers]
    newest = max(tick["point"][0] for tick in ticks)
    same = [viewer.until("tick", lambda tick: tick["point"][0] > newest)["point"] for viewer in viewers]
    assert same == [same[0]] * 6


def test_an_interval_leaves_ticks_out_and_sends_all_rows(harness, view):
    router = harness.router(harness.worker(), harness.worker())
    viewer = view(router, "?interval=5")
    viewer.until("fleet")
    viewer.until("tick")
    assert len(viewer.until("fleet")["workers"]) == 2
    second = viewer.until("tick")
    assert second["workers"] == []
    assert viewer.until("tick")["point"][0] - second["point"][0] >= 0.08  # of five seconds of 20 ms


def test_there_are_16_viewers_and_no_more(harness, view):
    router = harness.router(harness.worker())
    viewers = [view(router) for _ in range(16)]
    assert [viewer.head.status for viewer in viewers] == [200] * 16
    assert metric(router, "dashboard_viewers") == 16
    client = harness.client(router)
    rejected = client.ask("GET", EVENTS)
    assert rejected.status == 503
    assert json.loads(rejected.body)["error"]["message"] == (
        "The dashboard has 16 viewers, and no more are served; close one that is not needed."
    )
    viewers[3].client.close()
    eventually(lambda: metric(router, "dashboard_viewers") == 15, "a viewer that left is still counted")
    again = view(router)
    assert again.head.status == 200


def test_at_most_20_receipts_a_second_are_shown_evenly(harness, view):
    router = harness.router(harness.worker(lambda connection, _: connection.send(response(200, b"{}"))))
    viewer, client = view(router), harness.client(router)
    body = json.dumps({"model": "m", "prompt": "x"}).encode()
    shown = skipped = receipts = 0
    viewer.until("tick")  # receipts before the first one are not counted
    for _ in range(200):
        assert client.ask("POST", "/v1/completions", body=body).status == 200
    while shown + skipped < 200:
        name, data = viewer.next()
        receipts += name == "receipt"
        if name == "tick":
            assert data["receipts"]["shown"] <= 20
            shown += data["receipts"]["shown"]
            skipped += data["receipts"]["skipped"]
    assert receipts == shown
    assert shown + skipped == 200


def test_a_fleet_that_changes_is_sent_whole(harness, view):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(workers[0])
    viewer = view(router)
    assert len(viewer.until("fleet")["workers"]) == 1
    router.core.add_worker(workers[1].url)
    urls = [row["url"] for row in viewer.until("fleet")["workers"]]
    assert urls == [worker.url for worker in workers]
    router.core.remove_worker(workers[0].url)
    (row,) = viewer.until("fleet")["workers"]
    assert row["url"] == workers[1].url


def test_without_viewers_no_worker_is_looked_at_and_the_history_grows(harness, view):
    router = harness.router(harness.worker())
    client = harness.client(router)
    assert client.ask("GET", "/x").status == 200
    eventually(lambda: metric(router, "dashboard_viewers") == 0, "there is a viewer")
    assert metric(router, "dashboard_skipped_total") == 0
    viewer = view(router)
    assert viewer.until("tick", lambda tick: tick["facts"]["requests"] == 1)
