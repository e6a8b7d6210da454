"""Versions that a real API server does not have any more: 410 of a watch and of a page, by compaction."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.followed import urls
from tests.kubernetes.cluster import Namespace
from tests.kubernetes.conftest import STEADY, Follow
from tests.kubernetes.processes import ControlPlane, Server
from vllm_router.discovery.kubernetes_watch import Timing

pytestmark = pytest.mark.cluster

URL_A, URL_B, URL_C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def _allowed(space: Namespace) -> None:
    space.allow()


def test_a_watch_from_before_a_compaction_lists_everything_anew(
    space: Namespace, plane: ControlPlane, uncached: Server, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", "10.0.0.2")
    seen, server = follow(Timing(window=(1.0, 1.0), short=0.02, backoff=(5.0, 5.0)), server=uncached)
    seen.until_urls(URL_A, URL_B)

    def compact_before_the_second_watch(query: dict[str, Any]) -> None:
        if query.get("watch") and server.count("watch") == 1:
            space.end_pod("a")
            space.create_pod("c", "10.0.0.3")
            plane.compact()

    server.before = compact_before_the_second_watch
    seen.until_urls(URL_B, URL_C)
    assert seen.source.restarts["gone"] == 1
    lists = [query["resource_version"] for query in server.requests if not query.get("watch")]
    assert lists == ["0", None]  # without the cache, from which the old version may have come
    assert (seen.deleted, seen.errors) == ([], [])
    space.end_pod("b")
    assert seen.until_urls(URL_C).deleted == [URL_B]


def test_a_list_of_three_pages_that_is_compacted_after_the_first_begins_anew(
    space: Namespace, plane: ControlPlane, uncached: Server, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    for number in range(1000):
        space.create_pod(f"pending-{number}", None, node=None)
    space.create_pod("z", "10.0.0.2")
    seen, server = follow(STEADY, server=uncached)
    seen.until_urls(URL_A, URL_B)
    assert server.count("list") == 3
    assert [bool(query.get("_continue")) for query in server.requests[:3]] == [False, True, True]
    compacted: list[bool] = []

    def compact_before_the_second_page(query: dict[str, Any]) -> None:
        if query.get("_continue") and not compacted:
            compacted.append(True)
            space.end_pod("a")
            plane.compact()

    again, server = follow(STEADY, server=uncached)
    server.before = compact_before_the_second_page
    again.until_urls(URL_B)
    assert compacted
    # No list that is half of one version and half of another was declared.
    assert [urls(listing) for listing in again.listings] == [[URL_B]]
    assert (again.source.restarts["gone"], again.errors) == (1, [])
    assert server.count("list") == 5
