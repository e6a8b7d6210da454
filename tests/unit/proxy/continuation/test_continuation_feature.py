"""cpp/proxy/continuation/continuation_feature.h: what a server has of it, and what one without it has not."""

import pytest

NAMES = ("streams_continued_total", "streams_cut_total", "continue_gap_seconds", "continue_memory_bytes")


@pytest.mark.parametrize("value", [None, "", "off", "tokens"], ids=str)
def test_off_there_are_no_metrics(harness, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("VLLM_ROUTER_CONTINUE_STREAMS", value)
    text = harness.router(harness.worker()).server.metrics_text()
    assert [name for name in NAMES if name in text] == []


def test_on_each_family_is_there(harness, monkeypatch):
    monkeypatch.setenv("VLLM_ROUTER_CONTINUE_STREAMS", "verified")
    text = harness.router(harness.worker()).server.metrics_text()
    assert [name for name in NAMES if f"# TYPE vllm_router_{name} " not in text] == []
