"""cpp/base/type_map.h: one object of each type."""

from vllm_router import _core_testing as testing


def test_an_object_is_found_by_its_type_and_only_by_that():
    def found(owned, referred):
        return testing.use_type_map(owned, referred)[0]

    assert found([], []) == []
    assert found(["text"], []) == ["text"]
    assert found(["text"], ["number"]) == ["number", "text"]


def test_what_it_owns_ends_in_the_reverse_order_and_what_it_refers_to_does_not():
    def ends(owned, referred):
        return testing.use_type_map(owned, referred)[1]

    assert ends(["number", "text"], []) == ["text", "number"]
    assert ends(["text", "number"], []) == ["number", "text"]
    assert ends(["text"], ["number"]) == ["text"]
