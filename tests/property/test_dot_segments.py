"""Dot segments against their slow twin, which tries every way to read a path."""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.models import dot_segments
from vllm_router import _core_testing as testing

SEPARATORS = [b"/", b"/", b"/", b"\\", b"%2f", b"%5c", b"%252F"]
DOTS = [b"..", b"..", b".", b"%2e", b"%2E%2e", b"%252e", b"..."]
OTHERS = [b"a", b"b.c", b";", b"%3b", b"%", b"%25", b"2e"]
PIECES = st.sampled_from([*SEPARATORS, *DOTS, *OTHERS])
PATHS = st.lists(PIECES, max_size=14).map(lambda pieces: b"/" + b"".join(pieces))


@given(PATHS)
@example(b"/a%2fb/..\\..")
@example(b"/a/..%2f..")
@example(b"/;\\%/..")
@example(b"/a/..;\\b/..")
def test_dot_segments_agree_with_the_twin(path):
    resolved = testing.resolve_dot_segments(path)
    assert resolved == dot_segments.resolve(path)
    if resolved is not None:  # nothing is left to resolve, and nothing new leaves
        assert testing.resolve_dot_segments(resolved) == resolved
