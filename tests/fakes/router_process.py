"""The router's command as a process, on ports of its own.

with RouterProcess(folder, "--worker-urls", worker.url, "--policy", "auto") as router:
    router.call("GET", "/ha/status")            # (status, JSON or text)
    router.metric("peer_sync_up")
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import PATIENCE, eventually

_numbers = itertools.count()


class RouterProcess:
    """Started by its constructor, which does not wait; `wait()` does."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.log = folder / f"router-{next(_numbers)}.log"
        command = [sys.executable, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", "0"]
        command += ["--admin-port", "0", "--prometheus-port", "0", "--log-level", "info"]
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sink
            )
        self.port = self.admin_port = 0

    def wait(self) -> RouterProcess:
        """Until it serves."""

        def serves() -> bool:
            text = self.log.read_text()
            assert self.process.poll() is None, text
            found = re.search(
                r"serves http://127\.0\.0\.1:(\d+).*admin endpoints on http://[^:]+:(\d+)", text
            )
            if found:
                self.port, self.admin_port = int(found[1]), int(found[2])
            return found is not None

        eventually(serves, "the router did not start")
        return self

    def call(self, method: str, path: str, body: Any = None, admin: bool = True) -> tuple[int, Any]:
        """The status, and JSON or text."""
        port = self.admin_port if admin else self.port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"} if body else {})
            response = connection.getresponse()
            self.head = {name.lower(): value for name, value in response.getheaders()}
            read = response.read()
            is_json = "json" in (response.getheader("Content-Type") or "")
            return response.status, json.loads(read) if is_json else read.decode()
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, by its name without the prefix; 0 while there is no such series."""
        family = parse(self.call("GET", "/metrics")[1]).get(f"vllm_router_{name}")
        return 0 if family is None else family.value(**labels)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """The exit status of a graceful end."""
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def __enter__(self) -> RouterProcess:
        return self.wait()

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
