"""cpp/proxy/admission/class_metrics.h: the families of priority classes, over all threads."""

import re

from tests.fakes.wire import eventually


def total(router, family):
    found = re.findall(rf"^vllm_router_{family}\{{.*\}} (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return sum(map(float, found))


def test_they_are_there_where_there_are_no_classes(harness):
    router = harness.router(harness.worker())
    text = router.server.metrics_text()
    for line in (
        'vllm_router_class_queue_depth{class="interactive"} 0',
        'vllm_router_class_dispatched_total{class="batch",how="aged"} 0',
        'vllm_router_class_rejected_total{class="default",reason="displaced"} 0',
        'vllm_router_evicted_requests_total{class="batch"} 0',
        'vllm_router_class_closed_seconds_total{class="batch",why="half"} 0',
        'vllm_router_class_queue_wait_seconds_count{class="batch"} 0',
    ):
        assert f"\n{line}\n" in text


def test_all_threads_are_counted(harness):
    router = harness.router(harness.worker(), threads=2, admission_config="class batch")
    for _ in range(8):  # each on a connection of its own, which either thread may have
        assert harness.client(router).ask("POST", "/v1/completions", body=b"{}").status == 200
    eventually(lambda: total(router, "class_dispatched_total") == 8)
