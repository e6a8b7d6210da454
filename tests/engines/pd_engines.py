"""A prefill and a decode engine: vLLM on the CPU with its NIXL connector, and the router in front.

Each keeps a core busy while it is idle, since NIXL polls. So they run for one module, and no third one does:
what a pair is compared with is the decode engine, when it is sent a request without parameters.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

from tests.engines.processes import HOME, Engine, Process, Router, call
from tests.fakes.wire import eventually, free_port

SLOW = 180.0  # seconds for one response, the first of a kind of which compiles
# Seconds for which prefill holds blocks that no decode engine fetches. vLLM's default is 30; where NIXL's
# threads have too few cores, an engine stood still for up to 45.
LEASE = 90
FREED = 60  # seconds for what is freed before its lease ends
TRANSFER = 60  # seconds for which the router waits for a decode engine that is merely slow


def missing() -> str | None:
    """What a pair needs beyond an engine."""
    for needed in ("venv/lib/python*/site-packages/nixl_cu13-*", "reference/bin/python"):
        if not list(HOME.glob(needed)):
            return f"{HOME / needed} is missing; `make test-engines` installs it"
    return None


class StageEngine(Engine):
    """One half of a pair. `role`: kv_producer or kv_consumer."""

    def __init__(self, name: str, role: str, on_failure: str = "fail") -> None:
        super().__init__(name)
        transfer = {
            "kv_connector": "NixlConnector",
            "kv_role": role,
            "kv_buffer_device": "cpu",
            "kv_load_failure_policy": on_failure,
            "kv_connector_extra_config": {"kv_lease_duration": LEASE},
        }
        self._flags = ["--kv-transfer-config", json.dumps(transfer)]
        self._environment = {
            "UCX_TLS": "tcp,sm,self",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
        }

    def usage(self) -> float:
        """The part of its KV blocks that is held: by requests, or for a decode engine."""
        return self.metric("vllm:kv_cache_usage_perc")

    def completed(self) -> float:
        """Requests that ran to their end; none that was aborted."""
        text = call(self.url, "GET", "/metrics").body.decode()
        ends = r'^vllm:request_success_total\{[^}]*finished_reason="(?:stop|length)"[^}]*\} (\S+)$'
        return sum(float(count) for count in re.findall(ends, text, re.MULTILINE))

    def is_idle(self) -> bool:
        return self.requests() == 0 and self.usage() == 0

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Its API server goes on; the engine behind it neither schedules nor responds to a handshake."""
        assert self._process is not None
        stopped = self._process.children()
        assert stopped, f"{self.name} has no process but its API server"
        try:
            for process in stopped:
                os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)


class PairRouter(Router):
    """The command in front of stages. `prefill`, `decode`: URLs."""

    def __init__(self, name: str, prefill: list[str], decode: list[str], *flags: str) -> None:
        named = [word for url in prefill for word in ("--prefill", url)]
        named += [word for url in decode for word in ("--decode", url)]
        waits = ["--pd-transfer-timeout-secs", str(TRANSFER)]
        super().__init__(name, [], "--vllm-pd-disaggregation", *named, *waits, "--log-format", "json", *flags)

    def is_ready(self) -> bool:
        return call(self.url, "GET", "/readiness").status == 200

    def loads(self) -> dict[str, int]:
        """Requests of each worker that has any."""
        return {url: worker["load"] for url, worker in self.workers().items() if worker["load"]}

    def labelled(self, name: str, label: str) -> dict[str, int]:
        """A counter by the values of a label, without those that are 0."""
        lines = rf'^vllm_router_{name}\{{{label}="([^"]+)"\}} (\S+)$'
        found = re.findall(lines, self.metrics_text(), re.MULTILINE)
        return {value: int(float(count)) for value, count in found if float(count)}

    def claims(self) -> dict[str, int]:
        return self.labelled("pd_claims_total", "end")

    def access_log(self) -> list[dict[str, Any]]:
        """The lines of requests that were for workers."""
        lines = [
            line for line in self.log.read_text().splitlines() if line.startswith("{") and '"pd":' in line
        ]
        return [json.loads(line) for line in lines]


class ReferenceRouter:
    """vllm-project/router, the command, in front of a pair."""

    def __init__(self, pair: Pair) -> None:
        port, metrics = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        ports = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
        stages = ["--vllm-pd-disaggregation", "--prefill", pair.prefill.url, "--decode", pair.decode.url]
        command = [str(HOME / "reference" / "bin" / "python"), "-m", "vllm_router.launch_router"]
        self._process = Process("router-reference", [*command, *ports, *stages], {"PYTHONPATH": ""})
        eventually(self._serves, f"the reference does not serve; see {self._process.log}", SLOW)

    def _serves(self) -> bool:
        assert self._process.is_running(), f"the reference has ended; see {self._process.log}"
        with contextlib.suppress(OSError):
            return call(self.url, "GET", "/readiness").status == 200
        return False

    def stop(self) -> None:
        self._process.stop()


class Pair:
    """Both engines, started together, and what a test needs to know of them."""

    def __init__(self) -> None:
        self.prefill = StageEngine("pd-prefill", "kv_producer")
        self.decode = StageEngine("pd-decode", "kv_consumer")
        for engine in (self.prefill, self.decode):
            engine.log.unlink(missing_ok=True)

    @property
    def engines(self) -> list[StageEngine]:
        return [self.prefill, self.decode]

    def bring_up(self) -> None:
        for engine in self.engines:
            if not (engine.is_running() and engine.is_ready()):
                engine.kill()
                engine.start()
        for engine in self.engines:
            engine.wait_until_ready()

    @contextlib.contextmanager
    def router(
        self, *flags: str, name: str = "router-pd", decode: list[str] | None = None
    ) -> Iterator[PairRouter]:
        """`decode`: URLs, where they are not the engine's alone."""
        router = PairRouter(name, [self.prefill.url], decode or [self.decode.url], *flags)
        try:
            yield router
        finally:
            router.stop()

    def forget_prefixes(self) -> None:
        for engine in self.engines:
            engine.forget_prefixes()

    def must_be_idle(self, patience: float = FREED) -> None:
        """Before a lease ends, both hold nothing."""
        for engine in self.engines:
            eventually(engine.is_idle, f"{engine.name} still holds {engine.usage():.4f}", patience)

    def stop(self) -> None:
        for engine in self.engines:
            engine.stop()
