"""cpp/proxy/continuation/continuation_feature.h: what says that streams go on, and what shows it."""

import pytest

from tests.fakes.continued import CHAT, ON, Fleet, body, events_of, got, stream, whole
from vllm_router import _core_testing as testing


def test_it_is_off_unless_an_option_says_so(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3))
    options = {name: value for name, value in ON.items() if name != "continue_streams"}
    router = harness.router(*fleet.workers, **options)
    assert got(harness.client(router), CHAT, body()) == (b"".join(events_of(CHAT)[:3]), False)


def test_it_can_be_turned_on_while_requests_run(harness):
    fleet = Fleet(harness, 2, stream(stop_after=3), stream(stop_after=3))
    router = harness.router(*fleet.workers, retry_budget=1, **{**ON, "continue_streams": "off"})
    assert not got(harness.client(router), CHAT, body(prompt="1"))[1]
    testing.publish_settings(router.server, continue_streams="verified")
    assert got(harness.client(router), CHAT, body(prompt="2")) == (whole(CHAT), True)


def test_a_word_that_is_none_is_refused(harness):
    with pytest.raises(
        ValueError, match='continue_streams is "text"; it must be one of off, verified, tokens'
    ):
        harness.router(harness.worker(), continue_streams="text")


def test_each_family_is_there(harness):
    names = (
        "streams_continued_total",
        "streams_cut_total",
        "streams_not_remembered_total",
        "continue_gap_seconds",
        "continue_memory_bytes",
        "continue_waiting",
    )
    text = harness.router(harness.worker()).server.metrics_text()
    assert [name for name in names if f"# TYPE vllm_router_{name} " not in text] == []
