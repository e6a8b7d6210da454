"""cpp/proxy/peer_sync/peer_admin.h: what an admin says of a worker counts where it is to count.

That it happens at all routers is in tests/proxy/test_peer_sync.py.
"""

import pytest

from tests.fakes.wire import eventually
from tests.proxy.test_peer_sync import ask, metric, open_router, urls, wait_until_connected


@pytest.fixture
def workers(harness):
    return [harness.worker(), harness.worker()]


def test_without_the_option_an_admin_changes_one_router_and_is_told_so(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    status_, reply = ask(harness, one, "POST", "/admin/drain", {"url": workers[0].url})
    assert (status_, reply["scope"]) == (202, "this router of 2")
    rounds = metric(other, "peer_sync_frames_read_total", result="ok")
    eventually(lambda: metric(other, "peer_sync_frames_read_total", result="ok") > rounds + 5)
    assert workers[0].url in urls(other)
