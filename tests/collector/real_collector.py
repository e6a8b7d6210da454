"""The collector of OpenTelemetry that scripts/build_otel_collector.sh builds, as a process of the tests.

collector = RealCollector(directory)            # takes OTLP over HTTP at .url, and writes a file
spans = collector.wait_for(4)                   # what it has written so far
collector.kill(); collector.start()             # the same port, and the same file goes on
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from tests.fakes.wire import eventually, free_port

ROOT = Path(__file__).parents[2]
START = 60.0  # seconds; it takes one on an idle core
KINDS = {1: "internal", 2: "server", 3: "client"}
NUMBERS = {"intValue": int, "doubleValue": float}

CONFIG = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{file: {{path: "{path}", append: true, flush_interval: 20ms}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [file]}}}}
"""


def binary() -> Path:
    """Where the script leaves it."""
    script = (ROOT / "scripts" / "build_otel_collector.sh").read_text()
    found = re.search(r"^version=(\S+)$", script, re.MULTILINE)
    assert found is not None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "vllm-router" / f"otel-collector-{found[1]}"


class CollectedSpan(NamedTuple):
    """One span as the collector wrote it; ids are lower-case hex, an absent parent is empty."""

    trace: str
    id: str
    parent: str
    state: str
    name: str
    kind: str  # internal, server, client
    begin_ns: int
    end_ns: int
    is_error: bool
    attributes: dict[str, Any]
    events: list[str]
    resource: dict[str, Any]


def attributes_of(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Values as Python has them; no key comes twice."""
    found = {}
    for pair in pairs:
        ((kind, value),) = pair["value"].items()
        found[pair["key"]] = NUMBERS.get(kind, lambda same: same)(value)
    assert len(found) == len(pairs)
    return found


def spans_in(line: str) -> list[CollectedSpan]:
    """Those of one line of the file, which is one export in OTLP's JSON."""
    return [
        CollectedSpan(
            trace=span["traceId"],
            id=span["spanId"],
            parent=span.get("parentSpanId", ""),
            state=span.get("traceState", ""),
            name=span["name"],
            kind=KINDS[span["kind"]],
            begin_ns=int(span["startTimeUnixNano"]),
            end_ns=int(span["endTimeUnixNano"]),
            is_error=span.get("status", {}).get("code") == 2,
            attributes=attributes_of(span.get("attributes", [])),
            events=[event["name"] for event in span.get("events", [])],
            resource=attributes_of(resource["resource"].get("attributes", [])),
        )
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


class RealCollector:
    """Its constructor starts it."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "spans.json"
        self._log = directory / "collector.log"
        self._config = directory / "collector.yaml"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._config.write_text(CONFIG.format(port=self.port, path=self._file))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(binary()), "--config", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(self._listens, f"the collector does not listen; see {self._log}", START)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """SIGKILL; what it had not written is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def spans(self) -> list[CollectedSpan]:
        """All that are in the file. Its last line may not be complete."""
        if not self._file.exists():
            return []
        lines = self._file.read_text().split("\n")[:-1]
        return [span for line in lines if line for span in spans_in(line)]

    def wait_for(self, count: int) -> list[CollectedSpan]:
        """The spans, once there are so many; more are a mistake."""
        eventually(lambda: len(self.spans) >= count, f"{count} spans never came; see {self._log}")
        assert len(self.spans) == count
        return self.spans
