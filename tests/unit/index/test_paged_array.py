"""cpp/index/paged_array.h, with pages of four items."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


@given(st.lists(st.one_of(st.integers(0, 2**64 - 1), st.none()), max_size=60))
def test_it_is_a_list_that_grows_at_its_end(steps):
    pages, items = testing.PagesOfFour(), []
    for step in steps:
        if step is not None:
            pages.push(step)
            items.append(step)
        elif items:
            pages.pop()
            items.pop()
        assert [pages[i] for i in range(len(pages))] == items


def test_items_stay_where_they_are():
    pages = testing.PagesOfFour()
    pages.push(1)
    address = pages.address(0)
    for item in range(1000):
        pages.push(item)
    assert pages.address(0) == address


def test_memory_goes_back_but_for_a_page_that_may_be_wanted_at_once():
    pages = testing.PagesOfFour()
    for item in range(400):
        pages.push(item)
    full = pages.bytes
    for _ in range(396):
        pages.pop()
    assert pages.bytes < full / 3
    held = pages.bytes
    for _ in range(5):  # across the border and back
        pages.push(0)
        pages.pop()
        assert pages.bytes == held
