"""An API server that is killed, or ends properly, and starts again while pods change."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fakes.followed import urls
from tests.fakes.wire import PATIENCE
from tests.kubernetes.cluster import Namespace
from tests.kubernetes.conftest import Follow
from tests.kubernetes.processes import Server
from vllm_router.discovery.kubernetes_watch import Timing

pytestmark = pytest.mark.cluster

PODS = 100
CATCH_UP = 15.0  # seconds, which is far below the 30 of a 403 that stays


def ip(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250}"


def url(number: int) -> str:
    return f"http://{ip(number)}:8000"


# One that starts rejects everything with 403 until it has read its roles. Frequent attempts meet that often.
@pytest.mark.parametrize(
    ("how", "timing"),
    [("kill", Timing()), ("stop", Timing()), ("kill", Timing(backoff=(0.02, 0.05)))],
    ids=["killed", "stopped", "tried_often"],
)
def test_pods_that_change_meanwhile_are_caught_up_with(
    how: str,
    timing: Timing,
    space: Namespace,
    server: Server,
    uncached: Server,
    follow: Follow,
    print_figure: Callable[[str], None],
) -> None:
    """Pod 2n is deleted, pod 2n+1 becomes not ready, pod 1000+n is new; a half of that while it is away."""
    space.allow()
    space.write_to(uncached)  # another API server of the same cluster
    for number in range(PODS):
        space.create_pod(f"p{number}", ip(number))
    seen, _ = follow(timing)
    seen.until(lambda: bool(seen.listings) and len(urls(seen.listings[-1])) == PODS)

    def change(number: int) -> None:
        space.end_pod(f"p{2 * number}")
        space.set_status(f"p{2 * number + 1}", ip(2 * number + 1), ready=False)
        space.create_pod(f"p{1000 + number}", ip(1000 + number))

    try:
        for number in range(PODS // 4):
            change(number)
        (server.kill if how == "kill" else server.stop)()
        for number in range(PODS // 4, PODS // 2):
            change(number)
        seen.until_error("unreachable")
    finally:
        server.start()
    ready = time.monotonic()
    expected = sorted(
        [url(2 * number + 1) for number in range(PODS // 2)] + [url(1000 + n) for n in range(50)]
    )
    seen.until(lambda: urls(seen.listings[-1]) == expected, 2 * PATIENCE)
    caught_up = next(at for at, one in zip(seen.times, seen.listings, strict=True) if urls(one) == expected)
    kinds = sorted({error.kind for error in seen.errors})
    print_figure(
        f"API server ended by {how}, back-off {timing.backoff}: caught up {caught_up - ready:+.2f} s after "
        f"it was ready again; errors {kinds}, restarts {dict(seen.source.restarts)}"
    )
    assert caught_up - ready < CATCH_UP
    # Of a server that starts: no connection; 403 without roles; 429 and 503 without a cache.
    assert set(kinds) <= {"unreachable", "forbidden", "throttled", "unavailable"}
    workers = {one.url: one for one in seen.listings[-1].workers or ()}
    assert [workers[url(2 * number + 1)].ready for number in range(PODS // 2)] == [False] * (PODS // 2)
    # What was there all the time was in each list, and what is still there was never said to be deleted.
    stayed = {url(2 * number + 1) for number in range(PODS // 2)}
    assert all(stayed <= set(urls(listing)) for listing in seen.listings)
    assert set(seen.deleted) <= {url(2 * number) for number in range(PODS // 2)}
    # The next change comes by a watch again.
    space.end_pod("p1")
    seen.until(lambda: url(1) in seen.listings[-1].deleted)
