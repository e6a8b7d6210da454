"""cpp/http/dot_segments.h: what a path is once its dot segments are resolved, and which paths leave."""

from tests.models import dot_segments
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

UNTOUCHED = [
    b"/",
    b"/v1/chat/completions",
    b"/v1/files/a.json",
    b"/.well-known/x",
    b"/...",
    b"/a/...../b",
    b"/a..b/c",
    b"/a%20b",
    b"/a%2fb",
    b"/a%2f..%2fb",  # inside for everybody, and only some know what it means
    b"/a\\..\\b",
    b"/a/b/..;x/c",
    b"/a/%",
    b"/a/%2",
    b"/100%25",
    b"//a",
    b"*",
]

RESOLVED = {
    b"/./a": b"/a",
    b"/a/.": b"/a/",
    b"/a/..": b"/",
    b"/a/../b": b"/b",
    b"/a/b/../../c": b"/c",
    b"/a/%2e%2e/b": b"/b",
    b"/a/%2E./b/.%2e/c": b"/c",
    b"/%2e/a": b"/a",
    b"/a//../b": b"/a/b",
    b"/a%2fb/c/../d": b"/a%2fb/d",
    b"/v1/x/../chat/./completions": b"/v1/chat/completions",
}

OUTSIDE = [
    b"/..",
    b"/../x",
    b"/%2e%2e/x",
    b"/%2E%2e",
    b"/a/../../x",
    b"/a/./../../x",
    b"//../x",  # where empty segments are dropped
    b"/..%2fx",
    b"/..%5Cx",
    b"/..\\x",
    b"/a\\..\\..\\x",
    b"/a%2f..%2f..%2fx",
    b"/a%2fb/../../x",  # one segment for some, so two levels up leave
    b"/a%2fb/..\\..",  # one of the two separators is none
    b"/%252e%252e/x",  # decoded twice
    b"/..%252f..%25255cx",
    b"/..;/x",
    b"/..;a=b/x",
    b"/a/..;/..;/x",
    b"/.%2e;/x",
    b"/a/../b/../../c",
]


@for_each_row("path", UNTOUCHED, ids=repr)
def test_a_path_without_plain_dot_segments_stays_as_it_is(path):
    assert testing.resolve_dot_segments(path) == path == dot_segments.resolve(path)


@for_each_row("path", RESOLVED, ids=repr)
def test_plain_dot_segments_are_resolved(path):
    """mending row 14: what stays under a worker's prefix is joined without its dot segments."""
    assert testing.resolve_dot_segments(path) == RESOLVED[path] == dot_segments.resolve(path)


@for_each_row("path", OUTSIDE, ids=repr)
def test_a_path_that_some_server_takes_out_of_the_prefix_is_outside(path):
    """mending row 14: no spelling of `..` leaves a worker's prefix."""
    assert testing.resolve_dot_segments(path) is None
    assert dot_segments.resolve(path) is None
