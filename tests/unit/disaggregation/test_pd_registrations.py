"""cpp/disaggregation/pd_registrations.h: which workers are here, and what changes that.

registered --silent 5 s--> silent --silent 60 s--> removed
"""

import pytest

from vllm_router._core_testing import PdRegistrations

SECOND = 10**9


def worker(address="a:1", role="prefill", mode=None, zmq="a:2", tp_size=1):
    return {
        "role": role,
        "http_address": address,
        "zmq_address": zmq,
        "mode": mode,
        "tp_size": tp_size,
        "dp_size": 1,
    }


@pytest.fixture
def table():
    return PdRegistrations(60 * SECOND)


def test_a_worker_is_added_once_and_kept_by_its_messages(table):
    assert table.register(worker(), 0) == ("taken", [("added", worker())])
    for second in range(3, 300, 3):
        assert table.register(worker(), second * SECOND) == ("taken", [])
    assert (table.size(), table.eligible("prefill"), table.eligible("decode")) == (1, 1, 0)


def test_4096_workers_fit():
    table = PdRegistrations(60 * SECOND)
    for number in range(4096):
        assert table.register(worker(f"h:{number + 1}"), number)[0] == "taken"
    assert table.register(worker("i:1"), 4096) == ("full", [])
    assert table.size() == table.eligible("prefill") == 4096
