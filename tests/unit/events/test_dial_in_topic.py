"""cpp/events/dial_in_topic.h: whose events a topic says they are, and where publishers may connect."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as core


@pytest.mark.parametrize(
    ("topic", "parsed"),
    [
        ("kv@10.0.0.7:8000@m", ("10.0.0.7", 8000)),
        ("kv@10.0.0.7@m", ("10.0.0.7", None)),
        ("kv@gpu-0:65535@org/model@v2", ("gpu-0", 65535)),
        ("kv@[fd00::1]:8000@m", ("fd00::1", 8000)),
        ("kv@[fd00::1]@m", ("fd00::1", None)),
        ("kv@fd00::1@m", ("fd00::1", None)),
        ("kv@h@", ("h", None)),
    ],
)
def test_a_topic_names_host_and_port(topic, parsed):
    assert core.parse_dial_in_topic(topic) == parsed


@for_each_row(
    "topic",
    [
        "",
        "kv@",
        "kv@@m",
        "kv@h",
        "kv@h:8000",
        "KV@h@m",
        "kv@h:@m",
        "kv@h:0@m",
        "kv@h:65536@m",
        "kv@h:8o@m",
        "kv@h:-1@m",
        "kv@h: 8@m",
        "kv@:8000@m",
        "kv@[fd00::1@m",
        "kv@[]@m",
        "kv@[fd00::1]8000@m",
    ],
)
def test_other_topics_name_nobody(topic):
    assert core.parse_dial_in_topic(topic) is None


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://*:5557",
        "tcp://0.0.0.0:5557",
        "tcp://[::]:5557",
        "tcp://127.0.0.1:*",
        "tcp://*:*",
        "tcp://eth0:1",
        "ipc:///x",
    ],
)
def test_an_endpoint_to_bind(endpoint):
    core.check_bind_endpoint("kv_events_bind", endpoint)


@pytest.mark.parametrize(
    "endpoint", ["", "tcp://*", "tcp://*:0", "tcp://*:65536", "udp://*:1", "5557", "*:5557", "tcp://a b:1"]
)
def test_any_other_is_refused_with_the_remedy(endpoint):
    with pytest.raises(ValueError, match=r"kv_events_bind: endpoint .* write tcp://\*:PORT"):
        core.check_bind_endpoint("kv_events_bind", endpoint)
