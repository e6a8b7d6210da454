"""cpp/events/prefix_source.h: what an operator may say of a source, and whose it is."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing
from vllm_router.settings.kinds import Unfit
from vllm_router.settings.urls import prefix_source

OPTION = "kv_prefix_source"
A, B = "http://w1:8000", "http://w2:8000"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("vllm-1=http://w1:8000/v1/kv_events", ("vllm-1", A, "/v1/kv_events", 1000, "")),
        ("a=https://w1", ("a", "https://w1", "/", 1000, "")),
        ("a=http://[::1]:8000?x=1", ("a", "http://[::1]:8000", "/?x=1", 1000, "")),
        ("a=http://w1:9/e,reconnect_interval_ms=5000", ("a", "http://w1:9", "/e", 5000, "")),
        (f"a=http://w1:9/e,worker={A}@1,reconnect_interval_ms=1", ("a", "http://w1:9", "/e", 1, f"{A}@1")),
    ],
)
def test_a_source_has_a_name_and_a_url(value, expected):
    assert testing.parse_prefix_source(OPTION, value) == expected
    assert prefix_source(value) == value


@for_each_row(
    ("value", "complaint"),
    [
        ("http://w1:8000/e", "is not NAME=URL"),
        ("=http://w1:8000/e", "is not NAME=URL"),
        ("x" * 129 + "=http://w1", "with a name of 1 to 128 bytes"),
        ("a=w1:8000", 'source "a": worker URL'),
        ("a=tcp://w1:5557", "tcp"),
        ("a=ws://w1/e", 'source "a" has the scheme ws, which is not implemented; use http or https'),
        ("a=WSS://w1/e", "has the scheme wss, which is not implemented; use http or https"),
        ("a=name://w1", "must name a host"),
        ("a=http://w1:8000@1/e", "must name a host"),
        ("a=http://w1/e#x", "visible ASCII characters without #"),
        ("a=http://w1/\x7f", "visible ASCII characters without #"),
        ("a=http://w1/e,retry=1", "may follow reconnect_interval_ms=N and worker=URL"),
        ("a=http://w1/e,reconnect_interval_ms=0", "between 1 and 60000"),
        ("a=http://w1/e,reconnect_interval_ms=60001", "between 1 and 60000"),
        ("a=http://w1/e,worker=w2", 'source "a": worker URL'),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_remedy(value, complaint):
    with pytest.raises((ValueError, NotImplementedError, RuntimeError)) as caught:
        testing.parse_prefix_source(OPTION, value)
    assert OPTION in str(caught.value)
    assert complaint in str(caught.value)
    with pytest.raises(Unfit):
        prefix_source(value)


def test_the_worker_is_the_one_named_or_the_one_at_the_same_host_and_port():
    assert testing.find_worker_of("a=http://W2:8000/e", [A, B]) == B
    assert testing.find_worker_of(f"a=http://w2:9000/e,worker={A}", [A, B]) == A
    assert testing.find_worker_of(f"a=http://w1:8000/e,worker={A}@1", [f"{A}@0", f"{A}@1"]) == f"{A}@1"


@pytest.mark.parametrize(
    ("value", "urls", "complaint"),
    [
        ("a=http://w3:8000/e", [A, B], 'source "a" is at "w3:8000", where no worker of the fleet is now'),
        (
            f"a=http://w1:8000/e,worker={B}",
            [A],
            f'source "a" names the worker "{B}", which is none of the fleet',
        ),
        (
            "a=http://w1:8000/e",
            [f"{A}@0", f"{A}@1"],
            f'several workers, "{A}@0" and "{A}@1"; name its worker by',
        ),
    ],
)
def test_none_or_two_is_one_sentence(value, urls, complaint):
    with pytest.raises((ValueError, KeyError, LookupError)) as caught:
        testing.find_worker_of(value, urls)
    assert complaint in str(caught.value).replace('\\"', '"')
