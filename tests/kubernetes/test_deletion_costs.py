"""Costs in annotations of pods, as a real API server takes and refuses them."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.kubernetes.cluster import Namespace
from tests.kubernetes.conftest import Follow
from vllm_router.discovery.kubernetes_client import HttpError
from vllm_router.discovery.kubernetes_costs import ANNOTATION, DeletionCosts, Use, is_of_another_uid

pytestmark = pytest.mark.cluster

URL_A, URL_B = "http://10.0.0.1:8000", "http://10.0.0.2:8000"


def cost_of(space: Namespace, name: str) -> str | None:
    pod: Any = space.core.read_namespaced_pod(name, space.name)
    return (pod.metadata.annotations or {}).get(ANNOTATION)


def allow_patch(space: Namespace) -> None:
    space.allow()
    space.rights.patch_namespaced_role(
        "vllm-router", space.name, [{"op": "add", "path": "/rules/0/verbs/-", "value": "patch"}]
    )
    space.wait_allowed(True, verb="patch")


def test_a_turn_writes_the_costs_of_pods_and_changes_nothing_else(space: Namespace, follow: Follow) -> None:
    allow_patch(space)
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", "10.0.0.2")
    space.annotate("a", {"owner": "them"})
    seen, _ = follow()
    seen.until_urls(URL_A, URL_B)
    uses = [Use(URL_A, 3, 0), Use(URL_B, 0, 0)]
    costs = seen.source.deletion_costs(lambda: uses)
    costs.turn()
    assert [cost_of(space, "a"), cost_of(space, "b")] == ["300", "0"]
    before = space.core.read_namespaced_pod("a", space.name)
    assert before.metadata.annotations["owner"] == "them"
    uses[1] = Use(URL_B, 7, 0)
    costs.turn()
    assert [cost_of(space, "a"), cost_of(space, "b")] == ["300", "700"]
    after = space.core.read_namespaced_pod("a", space.name)
    assert after.metadata.resource_version == before.metadata.resource_version, "it was not written again"


def test_a_pod_that_has_another_uid_by_now_is_not_written_to(space: Namespace, follow: Follow) -> None:
    allow_patch(space)
    space.create_pod("a", "10.0.0.1")
    seen, server = follow()
    seen.until_urls(URL_A)
    with pytest.raises(HttpError) as raised:
        server.annotate_pod(space.name, "a", "0b2f4e9c-0000-0000-0000-000000000000", ANNOTATION, "5", 5)
    assert is_of_another_uid(raised.value), raised.value
    with pytest.raises(HttpError) as raised:
        server.annotate_pod(space.name, "none", space.uid("a"), ANNOTATION, "5", 5)
    assert raised.value.status == 404
    assert cost_of(space, "a") is None


def test_without_the_verb_patch_the_log_says_what_is_missing_and_the_workers_stay(
    space: Namespace, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    space.allow()
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow()
    seen.until_urls(URL_A)
    caplog.set_level(logging.WARNING, "vllm_router.discovery")
    costs: DeletionCosts = seen.source.deletion_costs(lambda: [Use(URL_A, 1, 0)])
    costs.turn()
    costs.turn()
    [line] = [record.message for record in caplog.records if "deletion cost" in record.message]
    assert line.startswith("pod deletion costs cannot be written: ")
    assert 'cannot patch resource "pods"' in line
    assert line.endswith("; the router's Role needs the verb patch of pods")
    assert (cost_of(space, "a"), seen.errors) == (None, [])
