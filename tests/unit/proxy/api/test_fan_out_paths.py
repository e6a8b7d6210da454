"""cpp/proxy/api/fan_out_paths.h: which paths go to all workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.fan_out_paths import KNOWN, is_fan_out, resembles
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

PIECES = st.sampled_from(
    [
        "/",
        "v1",
        "flush_cache",
        "sleep",
        "update_weights",
        "_from_disk",
        "%66",
        "%2f",
        "lush_cache",
        "hooks",
        "a",
    ]
)


@for_each_row("path", [*KNOWN, "/v1/sleep", "/update_weights_from_disk", "/%66lush_cache"])
def test_those_that_engines_have(path):
    assert path.removesuffix("*") in testing.FanOutPaths([])


@pytest.mark.parametrize(
    "path", ["/flush_cache/", "/v1", "/v1/v1/sleep", "/flush", "/sleepy", "/", "/v2/sleep"]
)
def test_others_are_not(path):
    assert path not in testing.FanOutPaths([])


def test_more_of_them():
    paths = testing.FanOutPaths(["/own_rpc", "/hooks*"])
    assert [path in paths for path in ("/own_rpc", "/v1/own_rpc", "/hooks/a", "/hook")] == [
        True,
        True,
        True,
        False,
    ]


@given(st.lists(PIECES, max_size=5).map("".join), st.sampled_from(["GET", "HEAD", "POST", "DELETE", "get"]))
def test_it_is_the_slow_twins_answer(path, method):
    """Row 60: GET and HEAD go to all where engines have the path, and where the operator says so."""
    path, more = "/" + path, ["/hooks*", "GET /a"]
    assert testing.FanOutPaths(more).contains(path, method) == is_fan_out(path, more, method)


@given(st.lists(PIECES, max_size=6).map("".join))
def test_what_resembles_one_is_the_slow_twins_answer(path):
    path = "/" + path
    assert testing.FanOutPaths(["/hooks*", "/a"]).resembles(path) == resembles(path, ["/hooks*", "/a"])


@pytest.mark.parametrize(
    ("path", "empties"),
    [
        ("/flush_cache", True),
        ("/v1/reset_prefix_cache", True),
        ("/sleep", True),
        ("/update_weights_from_tensor", True),
        ("/finish_weight_update", True),
        ("/abort_requests", False),
        ("/wake_up", False),
        ("/load_lora_adapter", False),
        ("/hooks", False),
    ],
)
def test_some_empty_the_cache(path, empties):
    assert testing.FanOutPaths.empties_cache(path) == empties
