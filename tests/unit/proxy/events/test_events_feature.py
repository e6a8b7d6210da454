"""cpp/proxy/events/events_feature.h: sources that contradict each other are rejected at the start."""

import pytest


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kv_event_source": ["http://a:1=tcp://a:1", "http://a:1=tcp://a:2"]}, "is named twice"),
        ({"kv_event_replay_source": ["http://a:1=tcp://a:1"]}, "has no kv_event_source"),
    ],
)
def test_sources_that_contradict_each_other_are_rejected(harness, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        harness.router(harness.worker(), policy="auto", **options)


def test_two_sources_of_one_name_are_rejected(harness):
    named = "http://127.0.0.1:1/kv"
    with pytest.raises(ValueError, match=r'"a" is the name of two sources; give each a name of its own'):
        harness.router(kv_prefix_source=[f"a={named}", f"a={named}"])
