"""cpp/proxy/continuation/stream_cut.h: what the machine is told of a stream that ends too early."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    ("cut", "event"),
    [
        ("lost", "old_lost"),
        ("server_error", "old_timeout"),
        ("aborted", "old_aborted"),
        ("dead", "old_lost"),
        ("idle", "old_timeout"),
        ("drained", "old_timeout"),
        ("stalled", "old_timeout"),
    ],
)
def test_only_what_may_have_ended_a_worker_is_a_loss(cut, event):
    assert testing.continue_event_of(cut) == event
