"""cpp/proxy/continuation/pausable_sink.h: a stream that stands still while another takes its place.

That nothing of it is lost or sent twice is in tests/proxy/test_handovers.py.
"""

import pytest

from tests.fakes.continued import DRAIN, Fleet, begin, drain, posted_to, step_by_step
from tests.fakes.wire import eventually


@pytest.mark.parametrize("how", ["client", "cut"])
def test_a_stream_that_stands_still_can_be_ended(harness, how):
    fleet = Fleet(harness, 2)
    first_gates = [fleet.workers[0].gate() for _ in range(3)]
    second_gates = [fleet.workers[1].gate() for _ in range(2)]
    fleet.turns = [
        step_by_step(3, 5, 7, gates=first_gates, then="open"),
        step_by_step(1, 4, gates=second_gates, run="2", then="open"),
    ]
    router = harness.router(*fleet.workers, **DRAIN)
    client, _ = begin(harness, router, 3)
    first = fleet.workers[fleet.served[0]]
    drain(harness, router, first)
    second_gates[0].wait_for_someone()
    first_gates[0].open()
    first_gates[1].wait_for_someone()
    second_gates[0].open()
    second_gates[1].wait_for_someone()  # it has what the client had: the first stands still
    first_gates[1].open()
    first_gates[2].wait_for_someone()  # what it said waits
    if how == "client":
        client.close()
    else:
        drain(harness, router, first, secs=0)
    first_gates[2].open()
    posted_to(first)[0].wait_ended()
    if how == "cut":
        eventually(lambda: len(router.core.workers) == 1, "the worker has not left")
        client.close()
    second_gates[1].open()
    posted_to(fleet.workers[fleet.served[1]])[0].wait_ended()
    router.must_rest()
