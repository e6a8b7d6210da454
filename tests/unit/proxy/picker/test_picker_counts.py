"""cpp/proxy/picker/picker_counts.h: each result of a request has a series, from the start."""

import re

from tests.fakes.data_plane import head, response_head


def picks(router):
    found = re.findall(r'epp_picks_total\{result="(\w+)"\} (\d+)', router.server.metrics_text())
    return {result: int(count) for result, count in found}


def test_each_result_is_counted(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0)
    plane = data_plane(router)
    assert set(picks(router)) == {
        "picked", "subset_empty", "shed", "no_workers", "invalid", "left", "observed",
    }  # fmt: skip
    plane.pick(head())
    observed = plane.stream()
    observed.send(head(observability_mode=True), response_head(end=True))
    observed.close()
    elsewhere = plane.stream()
    elsewhere.send(head(subset="10.9.9.9:1"))
    elsewhere.rejection()
    elsewhere.close()
    left = plane.stream()
    left.send(head(method="POST", fields={"content-length": "9"}, mode=2))
    assert left.receive().WhichOneof("response") == "request_headers"
    left.close()
    router.core.set_healthy(worker.url, False)
    unserved = plane.stream()
    unserved.send(head())
    unserved.rejection()
    unserved.close()
    counted = {"picked": 1, "observed": 1, "subset_empty": 1, "left": 1, "no_workers": 1}
    assert {result: count for result, count in picks(router).items() if count} == counted
