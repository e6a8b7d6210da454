"""cpp/disaggregation/mooncake_engines.h: engine ids by rank, as a bootstrap server replies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import pd_connectors as twin
from vllm_router._core_testing import read_mooncake_engines


def read(reply):
    return read_mooncake_engines(json.dumps(reply).encode())


def test_each_rank_has_its_engine():
    reply = {
        "0": {"engine_id": "e0", "worker_addr": {"0": {"0": "tcp://10.0.0.1:5000"}}},
        "11": {"worker_addr": {}, "engine_id": "e11"},
    }
    assert read(reply) == {0: "e0", 11: "e11"}
    assert read({}) == {}


@pytest.mark.parametrize("reply", [b"", b"[]", b"null", b'{"0":', b'"x"', b"{} x"])
def test_what_is_no_object_is_no_reply(reply):
    assert read_mooncake_engines(reply) is None


@pytest.mark.parametrize("rank", ["", "-1", "+1", "01", "1.0", "a", " 1", "1024", "18446744073709551616"])
def test_what_is_no_rank_is_not_read(rank):
    assert read({rank: {"engine_id": "e"}, "1": {"engine_id": "e1"}}) == {1: "e1"}


@pytest.mark.parametrize(
    "told", [None, "e", [], {}, {"engine_id": None}, {"engine_id": ""}, {"engine_id": 7}]
)
def test_a_rank_without_an_engine_id_is_unknown(told):
    assert read({"0": told, "1": {"engine_id": "e1"}}) == {1: "e1"}


def test_limits():
    assert read({"1023": {"engine_id": "e" * 256}}) == {1023: "e" * 256}
    assert read({"1023": {"engine_id": "e" * 257}}) == {}


def test_of_a_rank_that_is_told_twice_the_last_counts():
    assert read_mooncake_engines(b'{"0":{"engine_id":"a"},"0":{"engine_id":"b"}}') == {0: "b"}
    assert read_mooncake_engines(b'{"0":{"engine_id":"a"},"0":null}') == {}
    assert read_mooncake_engines(b'{"0":{"engine_id":"a","engine_id":"b"}}') == {}


NAMES = st.sampled_from(["0", "1", "7", "01", "1023", "1024", "x", "", "\u0661"]) | st.text(max_size=3)
TOLD = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "engine_id": st.none() | st.integers() | st.text(max_size=300, alphabet='e\u00e9\n"'),
        "worker_addr": st.just({}),
    },
)


@given(st.dictionaries(NAMES, TOLD), st.integers(0, 200))
def test_a_reply_is_read_as_its_twin_reads_it(reply, cut):
    text = json.dumps(reply)[: -cut or None]
    assert read_mooncake_engines(text.encode()) == twin.mooncake_engines(text)
