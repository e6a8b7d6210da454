"""cpp/proxy/continuation/continuation_feature.h: what says that streams go on, and what shows it."""

import pytest

from tests.fakes.continued import CHAT, ON, Fleet, body, events_of, got, stream


@pytest.mark.parametrize("value", ["", "off", "tokens", "Verified"], ids=["empty", "off", "tokens", "upper"])
def test_other_words_leave_it_off(harness, monkeypatch, value):
    monkeypatch.setenv("VLLM_ROUTER_CONTINUE_STREAMS", value)
    fleet = Fleet(harness, 2, stream(stop_after=3))
    router = harness.router(*fleet.workers, **ON)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:3]), False)


def test_each_family_is_there(harness):
    names = ("streams_continued_total", "streams_cut_total", "continue_gap_seconds", "continue_memory_bytes")
    text = harness.router(harness.worker()).server.metrics_text()
    assert [name for name in names if f"# TYPE vllm_router_{name} " not in text] == []
