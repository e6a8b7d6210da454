"""cpp/shared_pool/page_query.h against its slow twin, for pools with gaps and responses in any order."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.page_query import PageQuery
from vllm_router import _core_testing as testing

LAYOUTS = st.sampled_from(
    [(["_k"], [], 0), (["_k", "_v"], [], 0), (["_k"], ["_s"], 2), (["_a", "_b", "_c"], ["_s", "_t"], 3)]
)
STATES = st.sampled_from(["absent", "first", "whole"])


@given(data=st.data(), pages=st.integers(0, 700), layout=LAYOUTS, all_keys=st.booleans())
def test_the_same_keys_are_queried_and_the_same_ranges_found(data, pages, layout, all_keys):
    suffixes, trailing, trailing_pages = layout
    query = testing.PageQuery(pages, suffixes, trailing, trailing_pages, all_keys)
    twin = PageQuery(pages, suffixes, trailing, trailing_pages, all_keys)
    # Runs of pages that are there; a few objects of these are not.
    cuts = sorted(data.draw(st.lists(st.integers(0, 700), max_size=6)))
    lost = data.draw(
        st.sets(st.tuples(st.integers(0, 700), st.sampled_from(suffixes + trailing)), max_size=5)
    )

    def is_there(key):
        return sum(cut <= key[0] for cut in cuts) % 2 == 0 and key not in lost

    if pages:
        known = data.draw(st.dictionaries(st.integers(0, pages - 1), STATES, max_size=5))
        for page, state in known.items():
            query.know(page, testing.PageState.__members__[state])
            twin.know(page, state)
    flying = {}
    while True:
        while True:
            request = query.next()
            assert request == twin.next()
            if request is None:
                break
            assert 0 < len(request[1]) <= 64
            flying[request[0]] = request[1]
        assert query.ranges == twin.ranges()
        if not flying:
            break
        assert not query.done
        assert len(flying) <= 4
        number = data.draw(st.sampled_from(sorted(flying)))
        there = [is_there(key) for key in flying.pop(number)]
        if data.draw(st.integers(0, 9)) == 9:
            query.fail(number)
            twin.fail(number)
        else:
            query.take(number, there)
            twin.take(number, there)
    assert query.done
    for page in range(pages):
        assert query.state(page).name == twin.state(page)
