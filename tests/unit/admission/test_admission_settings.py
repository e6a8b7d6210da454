"""cpp/admission/admission_settings.h: lines of priority classes, and what is wrong with them."""

import pytest

from vllm_router import _core_testing as testing
from vllm_router.settings.admission import admission_of_yaml


def test_the_defaults_are_those_of_the_file_s_reader():
    read = testing.admission_settings(admission_of_yaml("classes: [{name: batch}]", "classes.yaml"))
    assert testing.admission_settings() == read
    assert not read["weighted"]


def test_what_lines_set():
    settings = testing.admission_settings(
        "class interactive queue_size=1 queue_timeout_ms=2 gate=gated kv_ceiling=0.9 weight=8\n"
        "class default kv_ceiling=0.8 age_after_ms=3 weight=2.5\n\n"
        "class batch kv_ceiling=0.25 weight=0.5 evict=true\n"
        "alias batch nightly run\n"
        "alias interactive chat\n"
        "tenant weight=4 concurrency=64 requests_per_minute=1200 tokens_per_minute=600000 "
        "burst_ms=5000 search\n"
        "tenant weight=0.5 default\n"
        "tenant named\n"
        "engine sglang client=replace interactive=-5"
    )
    assert settings["engine"] == {
        "larger_first": True,
        "client": 2,
        "values": [5, 0, -10],
    }
    free = {"concurrency": 0, "requests_per_minute": 0, "tokens_per_minute": 0, "burst_ms": 10_000}
    assert settings["tenants"] == {
        "search": {
            "weight": 4,
            "concurrency": 64,
            "requests_per_minute": 1200,
            "tokens_per_minute": 600_000,
            "burst_ms": 5000,
        },
        "default": {"weight": 0.5, **free},
        "named": {"weight": 1, **free},
    }
    assert settings["weighted"]
    assert settings["aliases"] == {"nightly run": "batch", "chat": "interactive"}
    assert settings["classes"]["interactive"] == {
        "queue_size": 1,
        "queue_timeout_ms": 2,
        "gate": "gated",
        "kv_ceiling": 0.9,
        "age_after_ms": 0,
        "weight": 8,
        "evict": False,
    }
    assert settings["classes"]["default"]["age_after_ms"] == 3
    assert settings["classes"]["batch"]["kv_ceiling"] == 0.25
    assert settings["classes"]["batch"]["evict"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("klass batch", 'line 1: a line begins with "klass"'),
        ("class gold", 'line 1: class is "gold"; it must be interactive, default or batch'),
        ("class batch\nclass batch", "line 2: the class batch appears twice"),
        ("class batch queue_size", 'line 1: "queue_size" has no value'),
        ("class batch size=1", 'line 1: "size" is not a known member'),
        (
            "class batch queue_size=65537",
            'queue_size is "65537"; it must be a whole number between 0 and 65536',
        ),
        ("class batch queue_size=-1", 'queue_size is "-1"'),
        ("class batch queue_timeout_ms=0", "queue_timeout_ms"),
        ("class batch age_after_ms=x", "age_after_ms"),
        ("class batch gate=shut", 'gate is "shut"; it must be open, gated or idle_only'),
        ("class batch kv_ceiling=1.5", 'kv_ceiling is "1.5"; it must be a number above 0, up to 1'),
        ("class batch kv_ceiling=nan", "kv_ceiling"),
        ("class batch weight=0", "weight"),
        ("class batch weight=1", "some classes have a weight and interactive has none"),
        ("class batch evict=yes", 'evict is "yes"; it must be true or false'),
        ("class interactive evict=true", "evict of interactive is true, and no class is above it"),
        ("class default evict=true", "evict of default is true and that of batch, which is below it, is not"),
        ("class batch gate=open", "the gate of batch is open and that of default is gated"),
        ("class default kv_ceiling=0.4", "the kv_ceiling of batch is 0.5 and that of default is 0.4"),
        ("alias gold x", 'class is "gold"'),
        ("alias batch", "an alias has no name"),
        ("alias batch x\nalias default x", 'line 2: the alias "x" appears twice'),
        ("engine trt", 'line 1: engine is "trt"; it must be vllm, sglang or sglang-low-first'),
        ("engine vllm client=no", 'client is "no"; it must be keep, clamp or replace'),
        ("engine vllm gold=1", '"gold=1" is not a known member of engine'),
        ("engine vllm batch=1.5", 'batch is "1.5"; it must be a whole number'),
        ("engine vllm\nengine vllm", "line 2: engine appears twice"),
        ("tenant weight=0 search", 'weight is "0"; it must be a number above 0, up to 1000'),
        ("tenant concurrency=1000001 a", "it must be a whole number between 0 and 1000000"),
        ("tenant requests_per_minute=60000001 a", "it must be a whole number between 0 and 60000000"),
        ("tenant tokens_per_minute=100000000001 a", "a whole number between 0 and 100000000000"),
        ("tenant tokens_per_minute=-1 a", 'tokens_per_minute is "-1"'),
        ("tenant burst_ms=0 a", 'burst_ms is "0"; it must be a whole number between 1 and 86400000'),
        ("tenant weight=1 a=b", '"a" is not a known member of a tenant'),
        ("tenant wait=1 a", '"wait" is not a known member of a tenant'),
        ("tenant a b", '"b" is behind the name of a tenant, which must be the last word'),
        ("tenant other", 'the name of a tenant is "other"; it must be 1 to 64 letters'),
        ("tenant weight=1", "the name of a tenant"),
        ("tenant weight=1 a\ntenant weight=2 a", 'line 2: the tenant "a" appears twice'),
        ("\n".join(f"alias batch a{number}" for number in range(257)), "more than 256 aliases"),
    ],
    ids=lambda value: value[:24] if "\n" not in value else "lines",
)
def test_a_mistake_names_its_line_and_limit(lines, message):
    with pytest.raises(ValueError, match=message):
        testing.admission_settings(lines)
