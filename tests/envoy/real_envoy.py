"""The Envoy that scripts/install_envoy.sh installs, as a process of the tests: a gateway with a picker.

envoy = RealEnvoy(directory, router.server.epp_port, ports, response_body=STREAMED)
client = harness.client_at(envoy.port)
envoy.stop()
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fakes.wire import eventually, free_port

ROOT = Path(__file__).parents[2]
START = 60.0  # seconds; it takes half of one on an idle core

DUPLEX, BUFFERED, STREAMED, NONE = "FULL_DUPLEX_STREAMED", "BUFFERED", "STREAMED", "NONE"
DESTINATION = "x-gateway-destination-endpoint"
EXTENSIONS = "type.googleapis.com/envoy.extensions"
ROUND_ROBIN = {
    "name": "envoy.load_balancing_policies.round_robin",
    "typed_config": {"@type": f"{EXTENSIONS}.load_balancing_policies.round_robin.v3.RoundRobin"},
}


def binary() -> Path:
    """Where the script leaves it, unless VLLM_ROUTER_ENVOY names another one."""
    if named := os.environ.get("VLLM_ROUTER_ENVOY"):
        return Path(named)
    script = (ROOT / "scripts" / "install_envoy.sh").read_text()
    found = re.search(r"^version=(\S+)$", script, re.MULTILINE)
    assert found is not None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "vllm-router" / f"envoy-{found[1]}" / "envoy"


def endpoints(ports: Sequence[int]) -> list[dict[str, Any]]:
    addresses = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports]
    return [{"lb_endpoints": [{"endpoint": {"address": address}} for address in addresses]}]


def worker_cluster(ports: Sequence[int], takes_lists: bool) -> dict[str, Any]:
    """As docs/how-to/pick_endpoints_for_a_gateway.md has it."""
    if not takes_lists:
        return {
            "name": "workers",
            "connect_timeout": "1s",
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION},
        }
    override = {
        "@type": f"{EXTENSIONS}.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [
            {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}},
            {"header": DESTINATION},
        ],
        "fallback_policy": {"policies": [{"typed_extension_config": ROUND_ROBIN}]},
    }
    name = "envoy.load_balancing_policies.override_host"
    return {
        "name": "workers",
        "connect_timeout": "1s",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "workers", "endpoints": endpoints(ports)},
        "load_balancing_policy": {
            "policies": [{"typed_extension_config": {"name": name, "typed_config": override}}]
        },
    }


def picker_cluster(port: int, ca: str | None) -> dict[str, Any]:
    http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    cluster: dict[str, Any] = {
        "name": "vllm_router",
        "connect_timeout": "1s",
        "type": "STATIC",
        "typed_extension_protocol_options": {
            http: {
                "@type": f"type.googleapis.com/{http}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {"cluster_name": "vllm_router", "endpoints": endpoints([port])},
    }
    if ca is not None:
        cluster["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{EXTENSIONS}.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"validation_context": {"trusted_ca": {"filename": ca}}},
            },
        }
    return cluster


def filters(request_body: str, response_body: str, subset: Any) -> list[dict[str, Any]]:
    namespaces = ["envoy.lb", "envoy.lb.subset_hint"]
    full = DUPLEX in (request_body, response_body)
    process = {
        "@type": f"{EXTENSIONS}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "vllm_router"}},
        "message_timeout": "90s",
        "failure_mode_allow": False,
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": request_body,
            "request_trailer_mode": "SEND" if full else "SKIP",
            "response_header_mode": "SEND",
            "response_body_mode": response_body,
            "response_trailer_mode": "SEND",
        },
        "response_attributes": ["upstream.address"],
        "metadata_options": {
            "forwarding_namespaces": {"untyped": namespaces},
            "receiving_namespaces": {"untyped": namespaces[:1]},
        },
    }
    router = {"@type": f"{EXTENSIONS}.filters.http.router.v3.Router"}
    found = [
        {"name": "envoy.filters.http.ext_proc", "typed_config": process},
        {"name": "envoy.filters.http.router", "typed_config": router},
    ]
    if subset is not None:
        hint = {
            "@type": f"{EXTENSIONS}.filters.http.set_metadata.v3.Config",
            "metadata": [{"metadata_namespace": namespaces[1], "value": {f"{DESTINATION}-subset": subset}}],
        }
        found.insert(0, {"name": "envoy.filters.http.set_metadata", "typed_config": hint})
    return found


def configuration(
    port: int,
    picker_port: int,
    worker_ports: Sequence[int],
    *,
    request_body: str = DUPLEX,
    response_body: str = NONE,
    takes_lists: bool = False,
    subset: Any = None,
    ca: str | None = None,
) -> dict[str, Any]:
    """Of an Envoy, as JSON has it.

    Args:
        takes_lists: it attempts the endpoints that it is told one after the other.
        subset: the endpoints that it lists for each request; None: it lists none.
        ca: the path of the certificate by which the picker's is checked; None: there is no TLS.
    """
    route: dict[str, Any] = {"cluster": "workers", "timeout": "0s"}
    if takes_lists:
        route["retry_policy"] = {"retry_on": "5xx,connect-failure", "num_retries": 2}
    manager = {
        "@type": f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "generate_request_id": False,
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
            ]
        },
        "http_filters": filters(request_body, response_body, subset),
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    clusters = [worker_cluster(worker_ports, takes_lists), picker_cluster(picker_port, ca)]
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


class RealEnvoy:
    """Its constructor starts it."""

    def __init__(
        self, directory: Path, picker_port: int, worker_ports: Sequence[int] = (), **options: Any
    ) -> None:
        self.port = free_port()
        config = directory / f"envoy-{self.port}.json"
        self._log = directory / f"envoy-{self.port}.log"
        config.write_text(json.dumps(configuration(self.port, picker_port, worker_ports, **options)))
        command = ["setpriv", "--pdeathsig", "KILL", str(binary()), "-c", str(config)]
        command += ["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        eventually(self._listens, f"Envoy does not listen; see {self._log}", START)

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """SIGKILL; its connections end with it."""
        self._process.kill()
        self._process.wait()
