"""Real rights and tokens: the Role of the documentation, 403 and 401, and how each of them ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fakes.followed import urls
from tests.fakes.wire import eventually
from tests.kubernetes.cluster import Namespace, write_token
from tests.kubernetes.conftest import Follow, Observed
from tests.kubernetes.processes import Server
from vllm_router.discovery.kubernetes_watch import Timing

pytestmark = pytest.mark.cluster

URL_A, URL_B, URL_C = (f"http://10.0.0.{number}:8000" for number in (1, 2, 3))

# An API server checks rights and tokens when a request begins, so a watch that is open goes on without them.
SHORT_WATCHES = Timing(window=(1.0, 1.0), short=0.02, backoff=(0.01, 0.05), forbidden=0.05)


def wait_for_another_watch(server: Observed) -> None:
    before = server.count("watch")
    eventually(lambda: server.count("watch") > before, "no other watch began")


def test_the_role_of_the_documentation_is_enough(space: Namespace, follow: Follow) -> None:
    space.allow()
    space.create_pod("a", "10.0.0.1")
    seen, server = follow(SHORT_WATCHES)
    seen.until_urls(URL_A)
    wait_for_another_watch(server)
    space.create_pod("b", "10.0.0.2")
    seen.until_urls(URL_A, URL_B)
    assert (seen.errors, server.count("list")) == ([], 1)


def test_403_from_the_start_says_what_is_missing_and_ends_when_it_is_given(
    space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow()
    assert seen.until_error("forbidden").message == (
        f"pods in namespace {space.name}: cannot list: 403: pods is forbidden: "
        f'User "{space.user}" cannot list resource "pods" in API group "" in the namespace "{space.name}"; '
        "a Role has to allow the verbs get, list and watch of pods"
    )
    assert seen.listings == []
    space.allow()
    seen.until_urls(URL_A)


def test_403_for_all_namespaces_names_a_cluster_role(space: Namespace, follow: Follow) -> None:
    space.allow()  # of one namespace, which is not enough
    seen, _ = follow(namespaces=[])
    message = seen.until_error("forbidden").message
    assert message.startswith("pods in all namespaces: cannot list: 403: pods is forbidden: ")
    assert 'cannot list resource "pods" in API group "" at the cluster scope; a ClusterRole has to' in message


def test_403_for_endpoint_slices_names_their_group(space: Namespace, follow: Follow) -> None:
    space.allow()
    seen, _ = follow(service="vllm")
    message = seen.until_error("forbidden").message
    assert 'cannot list resource "endpointslices" in API group "discovery.k8s.io" in the name' in message
    assert message.endswith("a Role has to allow the verbs get, list and watch of endpointslices")


def test_rights_that_are_taken_away_keep_the_workers_and_come_back(space: Namespace, follow: Follow) -> None:
    space.allow()
    space.create_pod("a", "10.0.0.1")
    space.create_pod("b", "10.0.0.2")
    seen, server = follow(SHORT_WATCHES)
    seen.until_urls(URL_A, URL_B)
    space.forbid()
    message = seen.until_error("forbidden").message
    assert f'cannot watch resource "pods" in API group "" in the namespace "{space.name}"' in message
    space.end_pod("a")
    space.create_pod("c", "10.0.0.3")
    lists = server.count("list")
    eventually(lambda: server.count("list") > lists + 2, "it does not try again")
    assert urls(seen.listings[-1]) == [URL_A, URL_B]
    space.bind()
    seen.until_urls(URL_B, URL_C)
    assert seen.deleted == []  # nothing was seen to go, so the guard looks at it


def test_pods_that_may_be_listed_and_not_watched_are_listed_again_and_again(
    space: Namespace, follow: Follow
) -> None:
    space.allow()
    space.rights.patch_namespaced_role(
        "vllm-router", space.name, [{"op": "replace", "path": "/rules/0/verbs", "value": ["list"]}]
    )
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow()
    assert 'cannot watch resource "pods"' in seen.until_error("forbidden").message
    space.create_pod("b", "10.0.0.2")
    seen.until_urls(URL_A, URL_B)


# Tokens in files, where a kubelet writes them


@pytest.fixture
def mounted(space: Namespace, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The token of the service account, as it is mounted in a pod."""
    from kubernetes.config import incluster_config

    space.allow()
    path = tmp_path / "token"
    write_token(path, space.token("first"))
    shutil.copy(server.authority, tmp_path / "ca.crt")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(path))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    return path


def test_a_token_that_is_replaced_before_it_ends_is_read_again_without_an_error(
    mounted: Path, space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, server = follow(SHORT_WATCHES, kubeconfig=None)
    seen.until_urls(URL_A)
    first = mounted.read_text()
    write_token(mounted, space.token("second"))
    space.revoke("first", first)
    wait_for_another_watch(server)
    wait_for_another_watch(server)
    space.create_pod("b", "10.0.0.2")
    seen.until_urls(URL_A, URL_B)
    assert (seen.errors, server.count("list")) == ([], 1)


def test_a_token_that_is_replaced_too_late_keeps_the_workers_and_its_401_is_said(
    mounted: Path, space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow(SHORT_WATCHES, kubeconfig=None)
    seen.until_urls(URL_A)
    first = mounted.read_text()
    space.revoke("first", first)
    error = seen.until_error("unauthorized")
    assert error.message == f"pods in namespace {space.name}: cannot watch: 401: Unauthorized"
    space.create_pod("b", "10.0.0.2")
    assert urls(seen.listings[-1]) == [URL_A]
    write_token(mounted, space.token("second"))
    seen.until_urls(URL_A, URL_B)
    assert first not in " ".join(error.message for error in seen.errors)


def test_a_service_account_that_is_deleted_and_made_again(
    mounted: Path, space: Namespace, follow: Follow
) -> None:
    space.create_pod("a", "10.0.0.1")
    seen, _ = follow(SHORT_WATCHES, kubeconfig=None)
    seen.until_urls(URL_A)
    space.core.delete_namespaced_service_account("vllm-router", space.name)
    seen.until_error("unauthorized")
    space.create_account()  # another one of the same name: its tokens are others
    write_token(mounted, space.token("second"))
    space.create_pod("b", "10.0.0.2")
    seen.until_urls(URL_A, URL_B)
