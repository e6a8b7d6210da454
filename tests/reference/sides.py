"""The two routers, each as its command and as its Python package."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.reference.workers import Seen, Worker

PATIENCE = 30.0
NOT_SHOWN = (
    "\0"  # in what a case saw: what follows is compared and, as it differs from run to run, not written down
)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def worker(self) -> str:
        return self.headers.get("x-worker", "-")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Side:
    """One of the two packages: how its command is started."""

    name: str
    python: str
    environment: dict[str, str]
    directory: str

    def probe(self, code: str) -> Any:
        """What `code` prints as JSON."""
        done = subprocess.run(
            [self.python, "-c", code],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])

    def command(self, *flags: str) -> list[str]:
        return [self.python, "-m", "vllm_router.launch_router", *flags]

    def refusal(self, *flags: str) -> str:
        """How the command ends; it is stopped if it starts to serve."""
        port = free_port()
        ports = ["--port", str(port), "--prometheus-port", str(free_port())]
        process = subprocess.Popen(
            self.command(*ports, *flags),
            env=self.environment,
            cwd=self.directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            end = time.monotonic() + 4  # one that waits for workers has no port open, and does not end either
            while process.poll() is None and time.monotonic() < end:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            else:
                if process.returncode is not None:
                    return f"exit status {process.returncode}"
            return "starts"
        finally:
            process.kill()
            process.wait()

    @contextlib.contextmanager
    def router(self, fleet: list[Worker], flags: list[str]) -> Iterator[Router]:
        port, metrics = free_port(), free_port()
        started = [
            *flags,
            "--port",
            str(port),
            "--prometheus-port",
            str(metrics),
            "--worker-startup-check-interval",
            "1",
        ]
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                self.command(*started),
                env=self.environment,
                cwd=self.directory,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            router = Router(port, metrics, fleet, process, self)
            try:
                router.wait_until_it_serves()
                yield router
            except BaseException:
                log.seek(0)
                print(log.read().decode(errors="replace")[-3000:], file=sys.stderr)
                raise
            finally:
                process.kill()
                process.wait()


@dataclass
class Router:
    port: int
    metrics_port: int
    fleet: list[Worker]
    process: subprocess.Popen[bytes]
    side: Side

    def wait_until_it_serves(self) -> None:
        """Until it answers and a worker is ready, if it has any."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer = self.ask("GET", "/readiness")
                if answer.status == 200 or (
                    answer.status == 503 and b'"total_workers":0' in answer.body.replace(b" ", b"")
                ):
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{self.side.name} does not serve")

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, port: int = 0
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            kind = {"Content-Type": "application/json"} if sent is not None else {}
            connection.request(method, path, sent, kind | (headers or {}))
            answer = connection.getresponse()
            data = answer.read()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, data)

    def chat(self, text: str = "Hello", headers: dict[str, str] | None = None, **more: Any) -> Answer:
        return self.ask(
            "POST",
            "/v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": text}], **more},
            headers,
        )

    def complete(self, prompt: Any = "Hello", headers: dict[str, str] | None = None, **more: Any) -> Answer:
        return self.ask("POST", "/v1/completions", {"model": "m", "prompt": prompt, **more}, headers)

    def said(self, answer: Answer) -> str:
        """Status and body in a few words."""
        text = answer.body.decode(errors="replace").strip()
        for worker in self.fleet:
            text = text.replace(worker.url, worker.name)
        text = re.sub("; did you mean [^?]*[?]", "", text)
        shown = f"“{text[:110]}”" if text else "empty"
        with contextlib.suppress(ValueError):
            value = json.loads(text)
            if isinstance(value, dict):
                shown = "{" + ", ".join(value) + "}"
                if isinstance(error := value.get("error"), dict):
                    shown = f"error `{error.get('code')}`"
                elif "code" in value:
                    shown += f" `{value['code']}`"
        return f"{answer.status} {shown}"

    def refusal(self, answer: Answer) -> str:
        """The same, without the words of what is not JSON."""
        return self.said(answer) if answer.body[:1] == b"{" else f"{answer.status} plain text"

    def seen(self) -> list[Seen]:
        return [request for worker in self.fleet for request in worker.seen]


def homes(workers: Iterable[str]) -> str:
    """Which worker each request went to; that follows from the workers' ports."""
    chosen = list(workers)
    count = len(set(chosen))
    return f"{count} worker{'s serve' if count > 1 else ' serves'}{NOT_SHOWN}{' '.join(chosen)}"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
