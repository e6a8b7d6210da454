"""cpp/proxy/exchange/request_state.h: what is kept is found by its type, and ends in reverse order."""

from vllm_router import _core_testing as testing


def test_things_are_found_by_their_type_and_end_from_the_last_to_the_first():
    seen = testing.request_state()
    assert seen["empty"] is None
    assert seen["kept"] == ("first", "changed", None)
    assert seen["ended"] == ["changed", "first"]
