"""cpp/routing/request_view.h: everything in a view is optional."""

from vllm_router import _core_testing as testing


def test_padding_is_what_simdjson_wants():
    assert testing.BODY_PADDING == 64


def test_a_view_of_nothing_is_a_request_without_a_key():
    assert testing.SessionKeyFinder().find() == ("", "missing", False)
