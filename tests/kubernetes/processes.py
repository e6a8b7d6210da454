"""Processes of the tests with a Kubernetes API server: etcd, kube-apiserver, and the router's command.

plane = ControlPlane(directory)
server = plane.server("api")                     # one of several may be killed, and started again
client = server.client(ADMIN)                    # of the package kubernetes
server.kubeconfig(directory, token)
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes import client as kube

from tests.fakes.authority import Authority
from tests.fakes.wire import PATIENCE, eventually, free_port

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "build" / "kubernetes" / "logs"
ADMIN = "token-of-the-administrator"
START = 60.0  # seconds; it takes 2 on two idle cores
ATTEMPTS = 5  # another program may take a free port first


def binary() -> Path:
    """Where scripts/build_kube_apiserver.sh leaves the API server."""
    script = (ROOT / "scripts" / "build_kube_apiserver.sh").read_text()
    found = re.search(r"^version=(\S+)$", script, re.MULTILINE)
    assert found is not None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "vllm-router" / f"kube-apiserver-{found[1]}"


def missing() -> str | None:
    """What is not installed, or None."""
    if not binary().exists():
        return f"{binary()} is missing; `make test-kubernetes` builds it"
    if shutil.which("etcd") is None:
        return "etcd is missing; `make test-kubernetes` installs it"
    return None


class Process:
    """A command that writes to a log of its own, and ends with pytest at the latest."""

    def __init__(self, name: str, command: list[str]) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = LOGS / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(15)
        self.kill()

    def resident_bytes(self) -> int:
        """The most memory it has ever had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return int(found[1]) << 10 if found else 0


def serving(name: str, command: Callable[[], list[str]], ready: Callable[[], bool]) -> Process:
    """Starts a command, again if it ends at once, until `ready()`."""
    for _ in range(ATTEMPTS):
        process = Process(name, command())
        eventually(partial(_settled, process, ready), f"see {process.log}", START)
        if process.is_running():
            return process
    raise AssertionError(f"{name} ends at once; see {process.log}")


def _settled(process: Process, ready: Callable[[], bool]) -> bool:
    return not process.is_running() or ready()


class ControlPlane:
    """etcd, and what API servers have in common."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.tls = self.authority.certify("127.0.0.1")
        self.key = directory / "service-accounts.pem"
        self.key.write_bytes(
            ec.generate_private_key(ec.SECP256R1()).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        self.tokens = directory / "tokens.csv"
        self.tokens.write_text(f"{ADMIN},administrator,administrator,system:masters\n")
        self.servers: list[Server] = []
        self.etcd = serving("etcd", self._etcd, self._etcd_serves)

    def server(self, name: str, *flags: str) -> Server:
        """Another API server on the same etcd."""
        made = Server(self, name, *flags)
        self.servers.append(made)
        made.start()
        return made

    def compact(self) -> None:
        """Drop every version but the newest of each object, as API servers do every five minutes."""
        revision = self._etcd_call("kv/range", {"key": "AA=="})["header"]["revision"]
        self._etcd_call("kv/compaction", {"revision": revision, "physical": True})

    def stop(self) -> None:
        for server in self.servers:
            server.kill()
        self.etcd.kill()

    def _etcd(self) -> list[str]:
        self.etcd_url, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        flags = {
            "--data-dir": str(self.directory / "etcd"),
            "--listen-client-urls": self.etcd_url,
            "--advertise-client-urls": self.etcd_url,
            "--listen-peer-urls": peers,
            "--initial-advertise-peer-urls": peers,
            "--initial-cluster": f"default={peers}",
        }
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)
        return ["etcd", *(word for pair in flags.items() for word in pair)]

    def _etcd_serves(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return bool(self._etcd_call("maintenance/status", {}).get("leader"))
        return False

    def _etcd_call(self, method: str, message: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self.etcd_url}/v3/{method}", json.dumps(message).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)


class Server:
    """A kube-apiserver. It keeps its port when it is started again."""

    def __init__(self, plane: ControlPlane, name: str, *flags: str) -> None:
        self.name = name
        self._plane = plane
        self._flags = flags
        self._process: Process | None = None
        self._clients: list[kube.ApiClient] = []
        self._has_served = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> str:
        """Path of the certificate that vouches for it."""
        return self._plane.authority.path

    def start(self) -> None:
        self._process = serving(self.name, self._command, self.is_ready)
        self._has_served = True

    def is_ready(self) -> bool:
        tls = self._plane.authority.client()
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=5, context=tls)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
            return connection.getresponse().status == 200
        return False

    def kill(self) -> None:
        """SIGKILL."""
        self._end(Process.kill)

    def stop(self) -> None:
        """SIGTERM: it ends watches properly."""
        self._end(Process.stop)

    def _end(self, how: Callable[[Process], None]) -> None:
        for client in self._clients:
            client.rest_client.pool_manager.clear()
        if self._process is not None:
            how(self._process)
            self._process = None

    def client(self, token: str) -> kube.ApiClient:
        made = kube.Configuration(host=self.url)
        made.ssl_ca_cert = self._plane.authority.path
        made.api_key = {"BearerToken": f"Bearer {token}"}
        self._clients.append(kube.ApiClient(made))
        return self._clients[-1]

    def kubeconfig(self, directory: Path, token: str) -> Path:
        """Writes one, and says where."""
        path = directory / "kubeconfig.json"
        cluster = {"server": self.url, "certificate-authority": self._plane.authority.path}
        content = {
            "kind": "Config",
            "apiVersion": "v1",
            "current-context": "real",
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "router"}}],
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": "router", "user": {"token": token}}],
        }
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(path)
        return path

    def resident_bytes(self) -> int:
        return 0 if self._process is None else self._process.resident_bytes()

    def _command(self) -> list[str]:
        plane = self._plane
        if not self._has_served:
            self.port = free_port()
        flags = {
            "--etcd-servers": plane.etcd_url,
            "--bind-address": "127.0.0.1",
            "--secure-port": str(self.port),
            "--tls-cert-file": plane.tls.cert,
            "--tls-private-key-file": plane.tls.key,
            "--cert-dir": str(plane.directory),
            "--token-auth-file": str(plane.tokens),
            "--authorization-mode": "RBAC",
            "--service-account-issuer": "https://kubernetes.default.svc",
            "--service-account-key-file": str(plane.key),
            "--service-account-signing-key-file": str(plane.key),
            "--service-cluster-ip-range": "10.96.0.0/16",
            "--advertise-address": "192.0.2.1",  # loopback is not allowed, and nothing connects to it
            "--endpoint-reconciler-type": "none",
            # It would wait for a controller to make a service account in each namespace.
            "--disable-admission-plugins": "ServiceAccount",
        }
        return [str(binary()), *(f"{flag}={value}" for flag, value in flags.items()), *self._flags]


class Router:
    """The command `vllm-router`, on free ports."""

    def __init__(self, name: str, *flags: str) -> None:
        (LOGS / f"{name}.log").unlink(missing_ok=True)
        command = [sys.executable, "-m", "vllm_router.launch_router", "--port", "0", "--prometheus-port", "0"]
        self._process = Process(name, [*command, "--log-level", "info", *flags])
        self.log = self._process.log
        eventually(lambda: bool(self._address()), f"{name} does not serve; see {self.log}")
        self.url = self._address()

    def _address(self) -> str:
        assert self._process.is_running(), f"the router has ended:\n{self.log.read_text()}"
        found = re.search(r"serves (http://\S+?:\d+)", self.log.read_text())
        return found[1] if found else ""

    def get(self, target: str) -> tuple[int, Any]:
        """Status and JSON."""
        return self._call("GET", target, None)

    def post(self, target: str, body: Any) -> tuple[int, Any]:
        return self._call("POST", target, json.dumps(body))

    def _call(self, method: str, target: str, body: str | None) -> tuple[int, Any]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        with contextlib.closing(connection):
            fields = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, target, body, fields)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")

    def states(self) -> dict[str, str]:
        """Of the workers, by URL."""
        return {row["url"]: row["state"] for row in self.get("/admin/discovery")[1]["workers"]}

    def stop(self) -> None:
        self._process.stop()
