"""cpp/disaggregation/push_identity.h: who a NIXL worker is that pushes, as its response says."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router._core_testing import read_push_identity, says_push

TOLD = {
    "do_remote_prefill": True,
    "remote_engine_id": "e1",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "tp_size": 2,
    "pp_size": 4,
    "transfer_mode": "push",
}


def read(told):
    return read_push_identity(json.dumps(told).encode())


def test_the_identity_is_engine_host_port_and_sizes():
    assert read(TOLD) == {"engine_id": "e1", "host": "10.0.0.1", "port": 5600, "tp_size": 2, "pp_size": 4}


@pytest.mark.parametrize("nothing", [{}, {"tp_size": None, "pp_size": None}])
def test_tp_size_is_1_and_pp_size_unknown_if_not_told(nothing):
    told = {name: value for name, value in TOLD.items() if not name.endswith("_size")} | nothing
    assert read(told) == {"engine_id": "e1", "host": "10.0.0.1", "port": 5600, "tp_size": 1, "pp_size": None}


@pytest.mark.parametrize("name", ["remote_engine_id", "remote_host", "remote_port"])
def test_without_engine_host_or_port_there_is_none(name):
    assert read({other: value for other, value in TOLD.items() if other != name}) is None
    for value in (None, "", {}, 0, True):
        assert read(TOLD | {name: value}) is None


@for_each_row("name", ["tp_size", "pp_size"])
@for_each_row("size", [0, -1, "2", 1.5, 65536, True])
def test_a_size_that_is_none_leaves_no_identity(name, size):
    assert read(TOLD | {name: size}) is None


def test_a_worker_that_is_pulled_from_has_none():
    assert read(TOLD | {"transfer_mode": "pull"}) is None
    assert read(TOLD | {"transfer_mode": None}) is not None
    assert read({name: value for name, value in TOLD.items() if name != "transfer_mode"}) is not None


def test_a_member_twice_leaves_no_identity():
    text = json.dumps(TOLD)[:-1]
    for name in ("remote_engine_id", "remote_host", "remote_port", "tp_size", "transfer_mode"):
        assert read_push_identity((text + f',"{name}":{json.dumps(TOLD[name])}}}').encode()) is None


def test_texts_are_unescaped_and_at_most_256_bytes():
    assert read_push_identity(rb'{"remote_engine_id":"\u0065","remote_host":"h","remote_port":1}') == {
        "engine_id": "e",
        "host": "h",
        "port": 1,
        "tp_size": 1,
        "pp_size": None,
    }
    assert read(TOLD | {"remote_engine_id": "e" * 256}) is not None
    assert read(TOLD | {"remote_engine_id": "e" * 257}) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"{}"])
def test_what_is_no_object_has_none(text):
    assert read_push_identity(text) is None


def test_only_push_is_push():
    assert says_push(b'{"transfer_mode":"push"}')
    for mode in (b'"pull"', b'"PUSH"', b"null", b"true"):
        assert not says_push(b'{"transfer_mode":' + mode + b"}")
    assert not says_push(b'{"transfer_mode":"push","transfer_mode":"push"}')
