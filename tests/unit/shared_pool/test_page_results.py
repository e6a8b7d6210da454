"""cpp/shared_pool/page_results.h; tests/property/test_page_results.py compares it with its slow twin."""

from vllm_router import _core_testing as testing

State = testing.PageState
MS = 1_000_000


def test_presence_is_known_for_a_second_and_absence_for_a_fifth():
    results = testing.PageResults(8)
    results.store(b"a", State.first, 0)
    results.store(b"b", State.absent, 0)
    assert results.find(b"a", 999 * MS) == State.first
    assert results.find(b"a", 1000 * MS) == State.unknown
    assert results.find(b"b", 199 * MS) == State.absent
    assert results.find(b"b", 200 * MS) == State.unknown
    assert len(results) == 0


def test_a_clear_forgets_all():
    results = testing.PageResults(2)
    results.store(b"a", State.whole, 0)
    results.clear()
    assert results.find(b"a", 0) == State.unknown
