"""A namespace of a real cluster, written to as a kubelet, controllers and people with kubectl do it.

space = Namespace(server, "test-1")
space.create_pod("vllm-0", "10.0.0.1")           # Running and Ready, on a node
space.set_status("vllm-0", "10.0.0.1", ready=False)
space.delete_pod("vllm-0")                       # gracefully: it stays until the kubelet has ended it
space.end_pod("vllm-0")                          # which is this
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client as kube

from tests.fakes.kubernetes import endpoint_slice, pod
from tests.fakes.wire import eventually
from tests.kubernetes.processes import ADMIN, ROOT, Server

ACCOUNT = "vllm-router"
MERGE = "application/merge-patch+json"
HOW_TO = ROOT / "docs" / "how-to" / "discover_workers.md"


def documented(kind: str) -> dict[str, Any]:
    """The manifest of this kind in docs/how-to/discover_workers.md."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    manifests = [yaml.safe_load(block) for block in blocks]
    (found,) = (one for one in manifests if isinstance(one, dict) and one.get("kind") == kind)
    return dict(found)


class Namespace:
    """A namespace, which it makes. What is written goes to `server`, which may be another one later."""

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self.write_to(server)
        self.core.create_namespace({"metadata": {"name": name}})

    def write_to(self, server: Server) -> None:
        client = server.client(ADMIN)
        self.core: Any = kube.CoreV1Api(client)
        self.discovery: Any = kube.DiscoveryV1Api(client)
        self.rights: Any = kube.RbacAuthorizationV1Api(client)
        self.reviews: Any = kube.AuthorizationV1Api(client)
        self.authentication: Any = kube.AuthenticationV1Api(client)

    # ---- pods

    def create_pod(self, name: str, ip: str | None, *, node: str | None = "node-1", **more: Any) -> None:
        """As it comes to run on a node; Pending if it has no IP. `more`: see tests.fakes.kubernetes.pod()."""
        made = pod(name, ip, namespace=self.name, **more)
        del made["metadata"]["uid"]
        status = made.pop("status")
        if node is not None:
            made["spec"]["nodeName"] = node
        self.core.create_namespaced_pod(self.name, made)
        if ip is not None:
            self._patch_status(name, status)

    def set_status(self, name: str, ip: str, **more: Any) -> None:
        """What its kubelet says of it."""
        self._patch_status(name, pod(name, ip, **more)["status"])

    def _patch_status(self, name: str, status: dict[str, Any]) -> None:
        self.core.patch_namespaced_pod_status(name, self.name, {"status": status}, _content_type=MERGE)

    def label(self, name: str, **labels: str | None) -> None:
        """None takes a label away."""
        self.core.patch_namespaced_pod(name, self.name, {"metadata": {"labels": labels}}, _content_type=MERGE)

    def annotate(self, name: str, annotations: dict[str, str]) -> None:
        self.core.patch_namespaced_pod(
            name, self.name, {"metadata": {"annotations": annotations}}, _content_type=MERGE
        )

    def delete_pod(self, name: str, grace_secs: int | None = None) -> None:
        """As kubectl does. None: the grace period of the pod, 60 seconds."""
        given = {} if grace_secs is None else {"grace_period_seconds": grace_secs}
        self.core.delete_namespaced_pod(name, self.name, **given)

    def end_pod(self, name: str) -> None:
        """As its kubelet does once its containers have ended, and as kubectl does with --force."""
        self.delete_pod(name, 0)

    def uid(self, name: str) -> str:
        return str(self.core.read_namespaced_pod(name, self.name).metadata.uid)

    # ---- EndpointSlices

    def create_slice(self, name: str, *endpoints: dict[str, Any], **more: Any) -> None:
        """See tests.fakes.kubernetes.endpoint_slice()."""
        self.discovery.create_namespaced_endpoint_slice(self.name, self._slice(name, endpoints, more))

    def replace_slice(self, name: str, *endpoints: dict[str, Any], **more: Any) -> None:
        self.discovery.replace_namespaced_endpoint_slice(name, self.name, self._slice(name, endpoints, more))

    def delete_slice(self, name: str) -> None:
        self.discovery.delete_namespaced_endpoint_slice(name, self.name)

    def _slice(
        self, name: str, endpoints: tuple[dict[str, Any], ...], more: dict[str, Any]
    ) -> dict[str, Any]:
        made = endpoint_slice(name, *endpoints, namespace=self.name, **more)
        del made["metadata"]["uid"]
        return made

    # ---- rights

    def create_account(self) -> None:
        """The router's service account, which may do nothing yet."""
        self.core.create_namespaced_service_account(self.name, {"metadata": {"name": ACCOUNT}})

    def token(self, secret: str | None = None) -> str:
        """A token of the account. With the name of a Secret it is made, and the token ends with it."""
        spec: dict[str, Any] = {"audiences": [], "expirationSeconds": 600}
        if secret is not None:
            made = self.core.create_namespaced_secret(self.name, {"metadata": {"name": secret}})
            spec["boundObjectRef"] = {
                "kind": "Secret",
                "apiVersion": "v1",
                "name": secret,
                "uid": made.metadata.uid,
            }
        body = {"spec": spec}
        made = self.core.create_namespaced_service_account_token(ACCOUNT, self.name, body)
        return str(made.status.token)

    def revoke(self, secret: str, token: str) -> None:
        """Ends a token, and waits for it: API servers take a token that was right for 10 seconds more."""
        self.core.delete_namespaced_secret(secret, self.name)
        review = {"spec": {"token": token}}
        eventually(
            lambda: not self.authentication.create_token_review(review).status.authenticated,
            "a token without its Secret is still right",
        )

    def allow(self, resource: str = "pods", other: Namespace | None = None) -> None:
        """Gives the account, or that of another namespace, the Role of the documentation."""
        role = self._here(documented("Role"))
        if resource == "endpointslices":
            role["rules"][0] |= {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"]}
        self.rights.create_namespaced_role(self.name, role)
        self.bind(other)
        self.wait_allowed(True, resource, other)

    def bind(self, other: Namespace | None = None) -> None:
        """Gives it the Role again that forbid() has taken away."""
        binding = self._here(documented("RoleBinding"))
        binding["subjects"][0]["namespace"] = (other or self).name
        self.rights.create_namespaced_role_binding(self.name, binding)

    def forbid(self) -> None:
        """Takes the Role away from the account again."""
        self.rights.delete_namespaced_role_binding(documented("RoleBinding")["metadata"]["name"], self.name)
        self.wait_allowed(False)

    def wait_allowed(
        self, allowed: bool, resource: str = "pods", other: Namespace | None = None, verb: str = "list"
    ) -> None:
        """Until the API server knows of it."""
        attributes = {
            "namespace": self.name,
            "verb": verb,
            "resource": resource,
            "group": "" if resource == "pods" else "discovery.k8s.io",
        }
        review = {"spec": {"user": (other or self).user, "resourceAttributes": attributes}}
        eventually(
            lambda: self.reviews.create_subject_access_review(review).status.allowed == allowed,
            f"the account is not {'allowed' if allowed else 'forbidden'} to list {resource}",
        )

    @property
    def user(self) -> str:
        """The account as RBAC calls it."""
        return f"system:serviceaccount:{self.name}:{ACCOUNT}"

    def _here(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return {**manifest, "metadata": {**manifest["metadata"], "namespace": self.name}}


def write_token(path: Path, token: str) -> None:
    """As a kubelet does: at once, so that no half of it is read."""
    temporary = path.with_suffix(".new")
    temporary.write_text(token)
    temporary.replace(path)
