"""What tests of Kubernetes manifests share: the chart, its renders, and what a pod tells its router."""

from pathlib import Path
from typing import Any

import yaml

from vllm_router.launch_router import parse_router_args
from vllm_router.router_args import RouterArgs

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "vllm-router"
PLAIN = ROOT / "deploy" / "kubernetes"
RENDERS = Path(__file__).parent / "chart_renders"

# Copies in the chart of what stands elsewhere, since a chart reads its own files only.
COPIES = {
    "alerts.yml": ROOT / "deploy" / "prometheus" / "alerts.yml",
    "recording.yml": ROOT / "deploy" / "prometheus" / "recording.yml",
    "vllm-router.json": ROOT / "deploy" / "grafana" / "vllm-router.json",
}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def the(kind: str, path: Path) -> dict[str, Any]:
    """The first object of a kind."""
    return next(document for document in documents(path) if document["kind"] == kind)


def pod(path: Path) -> dict[str, Any]:
    """The spec of the Deployment's pods."""
    spec: dict[str, Any] = the("Deployment", path)["spec"]["template"]["spec"]
    return spec


def router_args(path: Path, tmp_path: Path) -> RouterArgs:
    """What the router of a Deployment reads from its ConfigMap and its arguments, checked."""
    config = tmp_path / "router.yaml"
    config.write_text(the("ConfigMap", path)["data"]["router.yaml"])
    first, *others = pod(path)["containers"][0]["args"]
    assert first == "--config=/etc/vllm-router/config/router.yaml"
    args = parse_router_args([f"--config={config}", *others])
    args._validate_router_args()
    return args
