"""cpp/continuation/id_log.h: token ids in few bytes, and as JSON spells them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

IDS = st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)), max_size=60)


@given(IDS, st.data())
def test_a_log_is_a_list(ids, data):
    kept = data.draw(st.integers(0, len(ids)))
    end = data.draw(st.integers(0, kept))
    most = data.draw(st.integers(0, 70))
    everything, before, spelled = testing.id_log(ids, kept, end, most)
    assert everything == ids[:kept]
    assert before == ids[:kept][max(0, end - most) : end]
    assert json.loads(f"[{spelled}]") == ids[:kept]


@given(IDS, st.sampled_from([(",", ":"), (" , ", ": ")]))
def test_arrays_are_read(ids, separators):
    assert testing.read_ids(json.dumps(ids, separators=separators)) == ids


NO_IDS = ["", "null", "[", "[1", "[1,]", "[,1]", "[1 2]", "[-1]", "[1.0]", "[1e3]", "[01]", '["1"]', "[[1]]"]
TOO_LARGE = [f"[{2**32}]", f"[{2**64}]", f"[{10**40}]"]


@pytest.mark.parametrize("array", [*NO_IDS, *TOO_LARGE, "[1]x", "[true]"])
def test_what_is_no_array_of_ids_is_none(array):
    assert testing.read_ids(array) is None
