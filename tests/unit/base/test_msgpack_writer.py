"""cpp/base/msgpack_writer.h, by a push of events in JSON, which is read as MessagePack.

Events of a simulated worker and of Router.push_kv_events, bytes among them, are written by it, too.
"""

import json

import msgpack
import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def written(value):
    call = {"worker": "http://a:1", "events": [], "value": value}
    return testing.kv_push_payload(json.dumps(call))


def read(value):
    return msgpack.unpackb(written(value))["value"]


@for_each_row(
    "number", [0, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**64 - 1, -1, -32, -33, -(2**63)]
)
def test_integers(number):
    assert read(number) == number
    if number >= -32:
        assert written(number).endswith(msgpack.packb(number))  # the shortest form


@pytest.mark.parametrize("value", [None, True, False, 1.5, -0.0, "", "a" * 31, "ä" * 40])
def test_other_values(value):
    assert read(value) == value


@pytest.mark.parametrize("size", [0, 15, 16, 65_535, 65_536])
def test_containers(size):
    assert read([None] * size) == [None] * size
    members = {str(i): i for i in range(size)}
    assert read(members) == members
