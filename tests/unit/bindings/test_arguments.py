"""cpp/bindings/arguments.h: integers and sessions in every form that tables and arrays have them in."""

import importlib.util
from array import array
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import BlockCacheTracker, Router, TokenTree, hash_blocks

URLS = ["http://a:8000", "http://b:8000", "http://c:8000"]
IDS = list(range(1000, 1100))


class Series:
    """What a pandas Series is to numpy: an object with `__array__` and without a buffer."""

    def __init__(self, values: Any, dtype: Any) -> None:
        self.values = np.asarray(values, dtype=dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values if dtype is None else self.values.astype(dtype)


FORMS = {
    "list of np.int64": lambda ids: [np.int64(i) for i in ids],
    "list of np.uint32": lambda ids: list(np.array(ids, dtype=np.uint32)),
    "tuple": tuple,
    "range": lambda ids: range(ids[0], ids[-1] + 1) if ids else range(0),
    "array": lambda ids: array("I", ids),
    "memoryview of an array": lambda ids: memoryview(array("I", ids)),
    "memoryview of numpy": lambda ids: memoryview(np.array(ids, dtype=np.uint32)),
    "deque": deque,
    "uint32 series": lambda ids: Series(ids, np.uint32),
}


@pytest.mark.parametrize("form", FORMS)
def test_token_ids_in_every_form_are_the_same_prompt(form: str) -> None:
    """mending row 46: lists of numpy's integers, ranges, buffers of uint32 and Series."""
    expected = hash_blocks(np.array(IDS, dtype=np.uint32))
    made = FORMS[form](IDS)
    assert (hash_blocks(made) == expected).all()
    router = Router("auto", URLS)
    router.select(token_ids=made).finish()
    ticket = router.select(token_ids=IDS)
    assert (ticket.total, ticket.matched) == (6, 6)
    assert router.explain(token_ids=made).token_ids == 100
    batch = router.select_batch(token_ids=made, offsets=range(0, 101, 50))
    assert batch.total.tolist() == [3, 3]
    tracker = BlockCacheTracker()
    tracker.record_request(made, "w")
    assert tracker.match(IDS) == {"w": 6}
    tree = TokenTree()
    tree.insert(made, "w")
    assert tree.match(IDS).matched == 96  # whole pages


@pytest.mark.parametrize("form", [form for form in FORMS if form != "range"])
@given(ids=st.lists(st.integers(0, 2**32 - 1), max_size=40))
def test_any_ids_survive_any_form(form: str, ids: list[int]) -> None:
    """mending row 46: no value is changed on the way."""
    assert (hash_blocks(FORMS[form](ids), 4) == hash_blocks(np.array(ids, dtype=np.uint32), 4)).all()


@pytest.mark.parametrize("form", ["list", "array", "series", "memoryview"])
def test_offsets_in_every_form(form: str) -> None:
    """mending row 46: offsets are taken like token ids, as int64."""
    forms: dict[str, Any] = {
        "list": [np.int32(0), 3, 5],
        "array": array("q", [0, 3, 5]),
        "series": Series([0, 3, 5], np.int64),
        "memoryview": memoryview(np.array([0, 3, 5])),
    }
    batch = Router("cache_aware", URLS).select_batch(token_ids=[1, 2, 3, 4, 5], offsets=forms[form])
    assert batch.total.tolist() == [3, 2]


@for_each_row(
    ("value", "error", "text"),
    [
        ([1, 2.5], TypeError, r"token_ids\[1\] is of type float; it must be an integer"),
        (["secret words"], TypeError, r"token_ids\[0\] is of type str; it must be an integer"),
        ([1, -1], ValueError, r"token_ids\[1\] is -1; a token id is an integer between 0 and 4294967295"),
        ([2**32], ValueError, r"token_ids\[0\] is 4294967296"),
        ([2**70], ValueError, r"token_ids\[0\] is 1180591620717411303424"),
        ("secret words", TypeError, "token_ids is of type str"),
        (b"secret words", TypeError, "token_ids is of type bytes"),
        (array("q", [1]), TypeError, r"array.array with items of format 'q'; it must hold uint32"),
        (memoryview(b"secret words"), TypeError, "items of format 'B'; it must hold uint32"),
        (memoryview(np.arange(8, dtype=np.uint32))[::2], ValueError, "not contiguous"),
        (Series([1], np.int64), TypeError, "dtype int64; it must be uint32"),
        ({1: 2}, TypeError, "token_ids is of type dict"),
        (object(), TypeError, "a sequence of integers"),
    ],
)
def test_what_is_no_token_id_is_named_without_its_content(
    value: Any, error: type[Exception], text: str
) -> None:
    """mending row 46: type, place and limit, and nothing of a prompt."""
    with pytest.raises(error, match=text) as raised:
        Router("cache_aware", URLS).select(token_ids=value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("missing", [float("nan"), np.float64("nan"), None, "", "  "])
def test_a_missing_session_is_none(missing: Any) -> None:
    """mending row 46: NaN, as tables have it, is no session, in a batch and in headers."""
    router = Router("consistent_hash", URLS)
    assert router.select_batch(session_ids=["ada", missing]).reason == ["session_hash", "fallback"]
    assert router.select_batch(session_ids=np.array(["ada", missing], dtype=object)).reason[1] == "fallback"
    if missing is not None:
        assert router.select(headers={"X-Session-ID": missing}).reason == "fallback"


def test_a_number_is_no_session() -> None:
    """mending row 46: only a float that is no number counts as missing."""
    with pytest.raises(TypeError, match=r"session_ids\[1\] is of type float; .* None or NaN"):
        Router("consistent_hash", URLS).select_batch(session_ids=["ada", 1.5])


def test_a_series_of_pandas_where_it_is_installed() -> None:
    """mending row 46: pandas itself, if it is there; tests do without it."""
    if importlib.util.find_spec("pandas") is None:
        return
    pandas = importlib.import_module("pandas")
    router = Router("consistent_hash", URLS)
    assert router.select(token_ids=pandas.Series(IDS, dtype="uint32")).worker_url in URLS
    sessions = pandas.Series(["ada", None, pandas.NA, float("nan")], dtype=object)
    assert router.select_batch(session_ids=sessions).reason == ["session_hash"] + ["fallback"] * 3


def test_a_list_that_changes_while_it_is_read() -> None:
    """mending row 46: `__index__` is Python code, and may do anything."""
    ids: list[Any] = []

    class Emptying:
        def __index__(self) -> int:
            ids.clear()
            return 7

    ids += [Emptying()] * 1000
    assert Router("cache_aware", URLS).select(token_ids=ids).total == 1
