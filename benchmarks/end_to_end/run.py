#!/usr/bin/env python3
"""What the router adds to a request, beside nginx and HAProxy, in one run.

    PYTHONPATH=build/bench/python python benchmarks/end_to_end/run.py           everything, about 15 minutes
    ... run.py --scenarios json1k sse1000 --rounds 3                             a quick look
    ... run.py --smoke                                                           does it still work?

Starts a mock worker (upstream.cc), the proxies before it, and a load generator (load_generator.cc): proxies
on one core, worker and generator on another. Rounds alternate between the proxies, so that what else the
machine does hits all of them alike; figures are medians over the rounds, ratios are medians of the ratios
within a round. benchmarks/README.md tells how to read them.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import vllm_router._core

REPOSITORY = Path(__file__).resolve().parents[2]
# The build that made the extension, build/<preset>/python/vllm_router/_core.so, has the programs too.
BUILD = Path(vllm_router._core.__file__).resolve().parents[2]
PROGRAMS = BUILD / "benchmarks" / "end_to_end"

SATURATED = 0.95  # of the generator's core: from here on, an open loop measures the generator
RATE_REACHED = 0.98
START_SECONDS = 30
STOP_SECONDS = 10
TRACED = "+traced@"  # in the name of one of ours, in front of the share of requests
CONTINUED = "+continued"  # likewise: with --continue-streams verified

Row = dict[str, Any]


class BenchmarkError(Exception):
    """Something could not be started or measured; the message is for a person."""


# What is measured.


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One load. The targets are for CPU per unit (bytes per connection for memory): ours / theirs."""

    name: str
    what: str
    mode: str = "closed"
    connections: int = 64
    body_bytes: int = 1024
    rate: int = 0
    stream: str = ""  # events/interval in us/bytes
    close: bool = False
    memory: bool = False
    targets: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def unit(self) -> str:
        if self.memory:
            return "bytes"
        return "us/event" if self.mode == "stream" else "us/request"

    @property
    def metric(self) -> str:
        return "bytes_per_connection" if self.memory else "cpu_us"

    @property
    def is_open(self) -> bool:
        """Whether load arrives no matter what: then a saturated generator spoils the row."""
        return not self.memory and self.mode in ("open", "stream")

    def arguments(self, seconds: float, warmup: float) -> list[str]:
        return [
            *("--mode", self.mode, "--connections", str(self.connections)),
            *("--body-bytes", str(self.body_bytes), "--rate", str(self.rate), "--stream", self.stream),
            *("--close", str(int(self.close)), "--seconds", str(seconds), "--warmup", str(warmup)),
        ]

    def small(self) -> Scenario:
        """For --smoke: the same, but a few connections and a low rate."""
        return dataclasses.replace(
            self, connections=min(self.connections, 8), rate=min(self.rate, 200), stream=self.short_stream()
        )

    def short_stream(self) -> str:
        """A stream that ends soon, so that there is a whole body to compare."""
        if not self.stream:
            return ""
        events, interval_us, size = (int(part) for part in self.stream.split("/"))
        return f"{min(events, 40)}/{min(interval_us, 2000)}/{size}"


def _targets(nginx: float, haproxy: float) -> dict[str, float]:
    return {"nginx": nginx, "haproxy": haproxy}


SCENARIOS = (
    Scenario("json1k", "1 KB POSTs, 64 connections", targets=_targets(0.90, 0.90)),
    Scenario("json16k", "16 KB POSTs, 64 connections", body_bytes=16 << 10, targets=_targets(0.90, 0.90)),
    Scenario(
        "json100k",
        "100 KB POSTs, 16 connections",
        connections=16,
        body_bytes=100 << 10,
        targets=_targets(0.80, 0.90),
    ),
    Scenario(
        "sse1000",
        "1,000 streams, 20 events of 200 B per second each",
        mode="stream",
        connections=1000,
        stream="400/50000/200",
        targets=_targets(0.90, 1.00),
    ),
    Scenario(
        "sseburst",
        "100 events of 200 B as fast as possible, 64 connections",
        stream="100/0/200",
        targets=_targets(1.10, 1.10),
    ),
    Scenario("lat1", "1 KB POSTs, one connection", connections=1, targets=_targets(0.90, 0.90)),
    Scenario("open2k", "1 KB POSTs, 2,000 per second", mode="open", rate=2000, targets=_targets(0.90, 0.90)),
    Scenario(
        "close2k",
        "the same with Connection: close",
        mode="open",
        connections=256,
        rate=2000,
        close=True,
        targets=_targets(0.90, 0.90),
    ),
    Scenario("mem_idle", "8,000 client connections at rest", mode="idle", connections=8000, memory=True),
    Scenario(
        "mem_stream",
        "1,000 streams at once",
        mode="stream",
        connections=1000,
        stream="400/50000/200",
        memory=True,
    ),
)

# Ours alone must keep these, whatever the others need (bytes of user space per connection).
MEMORY_TARGETS = {"mem_idle": 2048, "mem_stream": 12 << 10}


# Who is measured.


_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Processes:
    """All that this run has started; none of it outlives the run."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        argv: list[str],
        log: Path,
        core: int | None = None,
        stdout: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        parent = os.getpid()

        def prepare() -> None:
            # Dies with this process, even when that is killed.
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # Ctrl-C goes to the whole group; ending them is our job
            if core is not None:
                os.sched_setaffinity(0, {core})

        with log.open("ab") as sink:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=sink if stdout is None else stdout,
                stderr=sink,
                env=os.environ | (environment or {}),
                preexec_fn=prepare,
            )
        self._all.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if process in self._all:
            self._all.remove(process)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            if process.poll() is None:
                process.terminate()
        for process in list(reversed(self._all)):
            self.end(process)


@dataclasses.dataclass
class Contender:
    """A running server: where it listens, and whose CPU counts."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path


class Bench:
    """One run: the directory, the cores and the mock worker that all contenders share."""

    def __init__(
        self,
        processes: Processes,
        directory: Path,
        cores: tuple[int, int] | None,
        before: Path | None = None,
    ) -> None:
        self.processes = processes
        self.directory = directory
        self.before = before
        self.proxy_core, self.load_core = cores if cores else (None, None)
        self.upstream = self._start_upstream()

    def _start_upstream(self) -> Contender:
        log = self.directory / "upstream.log"
        process = self.processes.start(
            [str(PROGRAMS / "upstream"), "--port", "0"], log, self.load_core, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the mock worker did not start: {_tail(log)}")
        return Contender("direct", json.loads(line)["port"], process, log)

    def start(self, name: str) -> Contender:
        if name == "direct":
            return self.upstream
        if name == "nginx":
            return self._start_peer(name, _nginx_command, _NGINX_CONFIGURATION)
        if name == "haproxy":
            return self._start_peer(name, _haproxy_command, _HAPROXY_CONFIGURATION)
        return self._start_ours(name)

    def stop(self, contender: Contender) -> None:
        if contender is not self.upstream:
            self.processes.end(contender.process)

    def _start_ours(self, name: str) -> Contender:
        name_and_policy, _, traced = name.removesuffix(CONTINUED).partition(TRACED)
        policy = name_and_policy.partition("/")[2] or "round_robin"
        log = self.directory / f"{name.replace('/', '-')}.log"
        log.unlink(missing_ok=True)
        # All that a router in service has on: access log (to a file), metrics, health checks.
        command = [
            *(sys.executable, "-m", "vllm_router.launch_router"),
            *("--worker-urls", f"http://127.0.0.1:{self.upstream.port}", "--policy", policy),
            *("--host", "127.0.0.1", "--port", "0", "--threads", "1"),
            *("--prometheus-port", "0", "--log-format", "json"),
        ]
        if traced:  # the mock worker takes the spans as it takes any request
            collector = f"http://127.0.0.1:{self.upstream.port}"
            command += [
                "--enable-trace",
                "--otlp-traces-endpoint",
                collector,
                "--otel-sampling-ratio",
                traced,
            ]
        if name.endswith(CONTINUED):
            command += ["--continue-streams", "verified"]
        package = {"PYTHONPATH": str(self.before)} if name == "before" else None
        process = self.processes.start(command, log, self.proxy_core, environment=package)
        port = int(
            _wait_for(lambda: re.search(rb"serves http://[^: ]+:(\d+)", log.read_bytes()), process, log)[1]
        )
        return Contender(name, port, process, log)

    def _start_peer(self, name: str, command: Callable[[Path], list[str]], configuration: str) -> Contender:
        for _ in range(5):  # neither can take port 0, and a port found free may be taken before they have it
            port = _free_port()
            home = self.directory / f"{name}-{port}"
            home.mkdir()
            text = configuration
            for key, value in {
                "PORT": port,
                "UPSTREAM": self.upstream.port,
                "HOME": home,
                "FILES": _file_limit(),
                "CONNECTIONS": _file_limit() // 2 - 50,
            }.items():
                text = text.replace(f"@{key}@", str(value))
            (home / f"{name}.conf").write_text(text)
            log = home / f"{name}.log"
            process = self.processes.start(command(home), log, self.proxy_core)
            with contextlib.suppress(BenchmarkError):
                _wait_for(lambda port=port: _connects(port), process, log)
                return Contender(name, port, process, log)
            self.processes.end(process)
        raise BenchmarkError(f"{name} did not start: {_tail(log)}")

    def load(self, contender: Contender, arguments: list[str], seconds: float) -> Row:
        """Runs the load generator against it; `seconds` is how long that should take."""
        log = self.directory / "load_generator.log"
        log.unlink(missing_ok=True)
        pids = str(contender.process.pid)
        process = self.processes.start(
            [str(PROGRAMS / "load_generator"), "--port", str(contender.port), "--pids", pids, *arguments],
            log,
            self.load_core,
            stdout=subprocess.PIPE,
        )
        try:
            out, _ = process.communicate(timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(
                f"the load generator took longer than {seconds + 60:.0f} s with {contender.name}"
            ) from None
        finally:
            self.processes.end(process)
        if process.returncode != 0:
            raise BenchmarkError(
                f"the load generator failed with {contender.name}: {_tail(log)}{out.decode()}"
                f"\n{contender.name} said: {_tail(contender.log)}"
            )
        if contender.process.poll() is not None:
            raise BenchmarkError(f"{contender.name} ended under load: {_tail(contender.log)}")
        # Its log may grow by 15 MB a second. It is open for appending, so the next line goes to the new end.
        os.truncate(contender.log, 0)
        row: Row = json.loads(out)
        return row


def _wait_for(happened: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if found := happened():
            return found
        time.sleep(0.01)
    raise BenchmarkError(f"{process.args[0]} did not start: {_tail(log)}")  # type: ignore[index]


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _file_limit() -> int:
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)


# A single process without a master: there is one pid to measure, and one to end.
_NGINX_CONFIGURATION = """\
daemon off;
master_process off;
worker_processes 1;
worker_rlimit_nofile @FILES@;
pid @HOME@/nginx.pid;
error_log @HOME@/nginx.log error;
events { worker_connections @FILES@; multi_accept on; }
http {
  access_log off;
  client_body_temp_path @HOME@/body;
  proxy_temp_path @HOME@/proxy;
  fastcgi_temp_path @HOME@/fastcgi;
  uwsgi_temp_path @HOME@/uwsgi;
  scgi_temp_path @HOME@/scgi;
  tcp_nodelay on;
  keepalive_timeout 3600s;
  keepalive_requests 1000000000;
  client_max_body_size 0;
  client_body_buffer_size 256k;  # bodies stay in memory
  upstream workers {
    server 127.0.0.1:@UPSTREAM@;
    keepalive 2048;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:@PORT@ backlog=16384;
    location / {
      proxy_pass http://workers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 3600s;
    }
  }
}
"""

_HAPROXY_CONFIGURATION = """\
global
  nbthread 1
  maxconn @CONNECTIONS@
defaults
  mode http
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout http-keep-alive 1h
frontend clients
  bind 127.0.0.1:@PORT@ backlog 16384
  default_backend workers
backend workers
  server worker 127.0.0.1:@UPSTREAM@
"""


def _program(name: str) -> str | None:
    """Debian puts servers where only root's PATH looks."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _nginx_command(home: Path) -> list[str]:
    return [str(_program("nginx")), "-p", str(home), "-e", "stderr", "-c", str(home / "nginx.conf")]


def _haproxy_command(home: Path) -> list[str]:
    return [str(_program("haproxy")), "-db", "-f", str(home / "haproxy.conf")]


# The run.


def verify(bench: Bench, contenders: list[Contender], scenario: Scenario) -> str:
    """A few requests through each: all must give the mock worker's bytes. Returns their checksum.

    The answer to a POST contains the hash of the body that the worker received, so both ways are compared.
    """
    asked = dataclasses.replace(
        scenario, mode="closed", connections=2, rate=0, stream=scenario.short_stream()
    )
    checksums = {}
    for contender in contenders:
        row = bench.load(contender, [*asked.arguments(20, 0), "--requests", "6"], 20)
        if row["errors"]["all"]:
            raise BenchmarkError(f"{scenario.name}: {contender.name} had errors: {row['errors']}")
        checksums[contender.name] = row["checksum"]
    if len(set(checksums.values())) != 1:
        raise BenchmarkError(f"{scenario.name}: the proxies did not return the same bytes: {checksums}")
    return str(checksums["direct"])


def judge(row: Row, scenario: Scenario, bench: Bench, checksum: str) -> str:
    """Why the row does not count; empty if it does."""
    if row["errors"]["all"]:
        return f"errors: {row['errors']}"
    if row["checksum"] and not scenario.stream and row["checksum"] != checksum:
        return f"checksum {row['checksum']} instead of {checksum}"
    if scenario.is_open:
        if bench.load_core is None:
            return "generator and proxy share their cores, so an open loop measures both"
        busy = row["core_busy"][bench.load_core]
        if busy >= SATURATED:
            return f"the generator's core was {busy:.0%} busy, so an open loop measures the generator"
        if scenario.mode == "open" and row["rps"] < RATE_REACHED * scenario.rate:
            return f"only {row['rps']:.0f} of {scenario.rate} requests per second"
    return ""


def measure(
    bench: Bench, contender: Contender, scenario: Scenario, seconds: float, warmup: float, checksum: str
) -> Row:
    """One row. A memory row has its contender to itself, started afresh and warmed up."""
    opening = scenario.connections / 1000  # connections per second is above that on any machine
    if scenario.memory:
        contender = bench.start(contender.name)
        try:
            warm = dataclasses.replace(SCENARIOS[0], connections=min(64, scenario.connections))
            bench.load(contender, warm.arguments(warmup, 0), warmup)
            row = bench.load(contender, scenario.arguments(seconds / 2, warmup), seconds + opening)
        finally:
            bench.stop(contender)
    else:
        row = bench.load(contender, scenario.arguments(seconds, warmup), seconds + warmup + opening)
        if bench.proxy_core is not None and contender.name != "direct":
            units = row["events"] if scenario.mode == "stream" else row["requests"]
            share = row["cpu_us"] * units / row["seconds"] / 1e6
            row["others"] = max(0.0, row["core_busy"][bench.proxy_core] - share)
    row["invalid"] = judge(row, scenario, bench, checksum)
    return row


def run_wrk(bench: Bench, contenders: list[Contender], seconds: float) -> dict[str, Row]:
    """json1k by wrk: a generator that is not ours, as a check on ours."""
    script = bench.directory / "json1k.lua"
    text = "lorem ipsum dolor sit amet, consectetur " * 24
    script.write_text(
        'wrk.method = "POST"\nwrk.path = "/v1/chat/completions"\n'
        'wrk.headers["Content-Type"] = "application/json"\n'
        f'wrk.body = [[{{"model":"mock","messages":[{{"role":"user","content":"{text}"}}]}}]]\n'
    )
    rows = {}
    for contender in contenders:
        before = _cpu_ns(contender.process.pid)
        process = bench.processes.start(
            [
                *(str(_program("wrk")), "-t1", "-c64", f"-d{max(1, round(seconds))}s", "-s", str(script)),
                *("--latency", f"http://127.0.0.1:{contender.port}"),
            ],
            bench.directory / "wrk.log",
            bench.load_core,
            stdout=subprocess.PIPE,
        )
        try:
            out = process.communicate(timeout=seconds + 60)[0].decode()
        finally:
            bench.processes.end(process)
        cpu_ns = _cpu_ns(contender.process.pid) - before
        requests = int(re.search(r"(\d+) requests in", out)[1])  # type: ignore[index]
        rps = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])  # type: ignore[index]
        rows[contender.name] = {"requests": requests, "rps": rps, "cpu_us": cpu_ns / 1000 / max(1, requests)}
        os.truncate(contender.log, 0)
    return rows


def _cpu_ns(pid: int) -> int:
    return sum(
        int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


# The result.


@dataclasses.dataclass
class Results:
    """Rows by scenario and contender, one per round."""

    rows: dict[str, dict[str, list[Row]]] = dataclasses.field(default_factory=dict)

    def add(self, scenario: str, contender: str, row: Row) -> None:
        self.rows.setdefault(scenario, {}).setdefault(contender, []).append(row)

    def values(self, scenario: str, contender: str, get: Callable[[Row], float]) -> list[float]:
        return [get(row) for row in self.rows[scenario].get(contender, []) if not row["invalid"]]

    def median(self, scenario: str, contender: str, get: Callable[[Row], float]) -> float | None:
        values = self.values(scenario, contender, get)
        return statistics.median(values) if values else None

    def paired(
        self,
        scenario: str,
        one: str,
        other: str,
        get: Callable[[Row], float],
        combine: Callable[[float, float], float],
    ) -> float | None:
        """The median over the rounds of what `combine` makes of two contenders in the same round."""
        pairs = zip(self.rows[scenario].get(one, []), self.rows[scenario].get(other, []), strict=False)
        values = [combine(get(a), get(b)) for a, b in pairs if not a["invalid"] and not b["invalid"]]
        return statistics.median(values) if values else None


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else float("nan")


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _print_table(lines: list[list[str]]) -> None:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for number, line in enumerate(lines):
        cells = [line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        print("| " + " | ".join(cells) + " |")
        if number == 0:
            print("|" + "|".join("-" * (w + 2) for w in widths) + "|")
    print()


def report(results: Results, scenarios: list[Scenario], names: list[str]) -> None:
    ours = [name for name in names if name.startswith("ours")]
    peers = [name for name in names if name in ("nginx", "haproxy", "before")]
    _report_cost(results, scenarios, names, ours, peers)
    _report_latency(results, [s for s in scenarios if not s.memory], names)
    _report_added(results, scenarios, [*ours, *peers])
    for scenario in scenarios:
        for name, rows in results.rows[scenario.name].items():
            reasons = [row["invalid"] for row in rows if row["invalid"]]
            if reasons:
                print(f"NOT VALID: {scenario.name} {name}, {len(reasons)} of {len(rows)} rows: {reasons[0]}")


def _report_cost(
    results: Results, scenarios: list[Scenario], names: list[str], ours: list[str], peers: list[str]
) -> None:
    print("Cost: CPU of the proxy per request or event, or its memory per connection: median (least-most).\n")
    pairs = [(our, peer) for our in ours for peer in peers]
    pairs += [(our, "ours") for our in ours if our != "ours"]
    lines = [["scenario", "unit", *names, *(f"{our}/{peer}" for our, peer in pairs), "others"]]
    for scenario in scenarios:

        def cost(row: Row, metric: str = scenario.metric) -> float:
            return float(row[metric])

        line = [scenario.name, scenario.unit]
        for name in names:
            values = results.values(scenario.name, name, cost)
            line.append(
                f"{_figure(statistics.median(values))} ({_figure(min(values))}-{_figure(max(values))})"
                if values
                else "-"
            )
        for our, peer in pairs:
            line.append(_judged(results.paired(scenario.name, our, peer, cost, _ratio), scenario, our, peer))
        others = [
            row["others"] for rows in results.rows[scenario.name].values() for row in rows if "others" in row
        ]
        line.append(f"{statistics.median(others):.0%}" if others else "-")
        lines.append(line)
    _print_table(lines)
    for scenario in scenarios:
        if scenario.name in MEMORY_TARGETS and ours:
            limit = MEMORY_TARGETS[scenario.name]
            used = results.median(scenario.name, ours[0], lambda row: float(row["bytes_per_connection"]))
            if used is not None:
                verdict = "met" if used <= limit else "MISSED"
                print(f"{scenario.name}: {used:,.0f} bytes, target {limit:,}: {verdict}")
    print(
        "others: share of the proxy's core that went to processes that are not measured; "
        "above 5% nothing here is worth quoting.\n"
    )


def _judged(ratio: float | None, scenario: Scenario, our: str, peer: str) -> str:
    if ratio is None:
        return "-"
    target = scenario.targets.get(peer) if our == "ours" else None
    if target is None:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} ({'met' if ratio <= target else 'MISSED'}: {target:.2f})"


def _report_latency(results: Results, scenarios: list[Scenario], names: list[str]) -> None:
    print(
        "Throughput, and latency p50 / p99 in us (of events from worker to client where there is a stream).\n"
    )
    lines = [["scenario", *(f"{name} {what}" for name in names for what in ("per s", "p50 / p99"))]]
    for scenario in scenarios:
        line = [scenario.name]
        for name in names:
            line.append(_figure(results.median(scenario.name, name, _rate(scenario))))
            latency = _latency(scenario)
            p50 = results.median(scenario.name, name, lambda row, key=latency: float(row[key]["p50"]))
            p99 = results.median(scenario.name, name, lambda row, key=latency: float(row[key]["p99"]))
            line.append(f"{_figure(p50)} / {_figure(p99)}")
        lines.append(line)
    if len(lines) > 1:
        _print_table(lines)


def _rate(scenario: Scenario) -> Callable[[Row], float]:
    key = "events_per_second" if scenario.mode == "stream" else "rps"
    return lambda row: float(row[key])


def _latency(scenario: Scenario) -> str:
    return "event_latency_us" if scenario.stream else "latency_us"


def _report_added(results: Results, scenarios: list[Scenario], names: list[str]) -> None:
    lines = [["added over direct, us", *names]]
    for scenario in scenarios:
        if scenario.name not in ("lat1", "open2k", "sse1000"):
            continue
        latency = _latency(scenario)
        for percentile in ("p50", "p99"):
            line = [f"{scenario.name} {percentile}"]
            for name in names:
                added = results.paired(
                    scenario.name,
                    name,
                    "direct",
                    lambda row, key=latency, p=percentile: float(row[key][p]),
                    lambda one, other: one - other,
                )
                line.append(_figure(added))
            lines.append(line)
    if len(lines) > 1:
        _print_table(lines)


def describe(peers: list[str]) -> dict[str, str]:
    """Machine, commit and versions: without them a figure means nothing."""
    cpu = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    system = re.search(r'PRETTY_NAME="(.*)"', Path("/etc/os-release").read_text())
    cache = BUILD / "CMakeCache.txt"
    kind = re.search(r"CMAKE_BUILD_TYPE:\w+=(\w*)", cache.read_text()) if cache.exists() else None
    described = {
        "machine": f"{os.cpu_count()} x {cpu[1] if cpu else platform.machine()}",
        "system": f"{system[1] if system else '?'}, Linux {platform.release()}",
        "commit": _output("git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"),
        "build": f"{BUILD.name} ({kind[1] if kind else '?'})",
        "vllm-router": vllm_router.__version__,
    }
    if "nginx" in peers:
        described["nginx"] = _output(str(_program("nginx")), "-v").rpartition("/")[2]
    if "haproxy" in peers:
        described["haproxy"] = _output(str(_program("haproxy")), "-v").split()[2]
    return described


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return "?"
    return (done.stdout or done.stderr).strip().partition("\n")[0] or "?"


def choose_cores(asked: str | None) -> tuple[int, int] | None:
    if asked:
        proxy, load = (int(core) for core in asked.split(","))
        return proxy, load
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else None


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(
        description="Compare the router with nginx, HAProxy and no proxy at all.",
        epilog="Scenarios: " + "; ".join(f"{s.name}: {s.what}" for s in SCENARIOS) + ".",
    )
    parser.add_argument(
        "--scenarios", nargs="+", choices=names, default=names, metavar="NAME", help="which of them; all"
    )
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (%(default)s)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before each (%(default)s)")
    parser.add_argument(
        "--peers", nargs="*", choices=["nginx", "haproxy"], help="both, if they are installed"
    )
    parser.add_argument("--policies", nargs="+", default=[], help="measure ours with these policies too")
    parser.add_argument(
        "--trace",
        nargs="+",
        default=[],
        metavar="SHARE",
        help="measure ours with this share of requests traced",
    )
    parser.add_argument(
        "--continued", action="store_true", help="measure ours with --continue-streams verified too"
    )
    parser.add_argument(
        "--before",
        type=Path,
        metavar="PYTHONPATH",
        help="measure another build of ours too, such as the last commit's",
    )
    parser.add_argument("--cores", metavar="PROXY,LOAD", help="cores to use; the first two that are allowed")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where all rows go (end_to_end.json in the build)"
    )
    parser.add_argument("--wrk", action="store_true", help="measure json1k by wrk as well")
    parser.add_argument("--smoke", action="store_true", help="everything once and tiny: does it still work?")
    arguments = parser.parse_args(argv)
    if arguments.rounds < 1 or arguments.seconds <= 0 or arguments.warmup < 0:
        parser.error("--rounds and --seconds must be above 0, and --warmup not below it")
    if arguments.smoke:
        arguments.rounds, arguments.seconds, arguments.warmup = 1, 0.1, 0.05
    return arguments


def choose_peers(asked: list[str] | None) -> list[str]:
    peers = ["nginx", "haproxy"] if asked is None else asked
    missing = [peer for peer in peers if _program(peer) is None]
    if missing and asked is not None:
        raise BenchmarkError(
            f"{' and '.join(missing)} not found; `make deps-bench` installs what is compared"
        )
    for peer in missing:
        print(f"{peer} is not installed and left out; `make deps-bench` installs it.")
    return [peer for peer in peers if peer not in missing]


def compare(
    arguments: argparse.Namespace, bench: Bench, names: list[str], scenarios: list[Scenario]
) -> dict[str, Any]:
    """All rounds of all scenarios; prints the tables and returns what goes into the JSON file."""
    contenders = [bench.start(name) for name in names]
    checksums = {}
    for scenario in scenarios:
        checksums[scenario.name] = verify(bench, contenders, scenario)
        print(f"{scenario.name}: all returned the same bytes, checksum {checksums[scenario.name]}")
    print()

    results = Results()
    for number in range(arguments.rounds):
        for scenario in scenarios:
            if scenario.memory and number >= 3:
                continue  # bytes do not vary as microseconds do
            # Another order each round, so that nobody always runs behind the same neighbour.
            turn = number % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                if scenario.memory and contender.name == "direct":
                    continue
                row = measure(
                    bench, contender, scenario, arguments.seconds, arguments.warmup, checksums[scenario.name]
                )
                results.add(scenario.name, contender.name, row)
        print(
            f"round {number + 1} of {arguments.rounds} done, load average {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print()
    if arguments.smoke:
        print("The windows of a smoke run are too short for figures; its rows are in the file.")
    else:
        report(results, scenarios, names)

    outcome: dict[str, Any] = {"checksums": checksums, "rows": results.rows}
    if arguments.wrk:
        outcome["wrk"] = run_wrk(bench, contenders, arguments.seconds)
        print("\njson1k by wrk:\n")
        _print_table(
            [["", *names]]
            + [[key, *(_figure(outcome["wrk"][name][key]) for name in names)] for key in ("cpu_us", "rps")]
        )
    return outcome


def check_programs(arguments: argparse.Namespace) -> None:
    for program in ("upstream", "load_generator"):
        if not (PROGRAMS / program).exists():
            raise BenchmarkError(
                f"{PROGRAMS / program} is missing: build the preset bench (`make build-bench`) and set "
                "PYTHONPATH to build/bench/python, or configure with -DROUTER_LOAD=ON"
            )
    if arguments.wrk and _program("wrk") is None:
        raise BenchmarkError("--wrk, but wrk is not installed; `make deps-bench` installs it")


def fit(scenario: Scenario) -> Scenario:
    """Fewer connections where the system allows few open files."""
    most = _file_limit() // 2 - 100
    return dataclasses.replace(scenario, connections=min(scenario.connections, most))


@contextlib.contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does, through every `finally`."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def run(arguments: argparse.Namespace) -> bool:
    """Returns whether all went well; figures that miss a target are no failure."""
    check_programs(arguments)
    peers = choose_peers(arguments.peers)
    cores = choose_cores(arguments.cores)
    names = ["direct", "ours", *(f"ours/{policy}" for policy in arguments.policies)]
    names += [f"ours{TRACED}{share}" for share in arguments.trace]
    names += [f"ours{CONTINUED}"] if arguments.continued else []
    names += peers
    if arguments.before is not None:
        if not (arguments.before / "vllm_router").is_dir():
            raise BenchmarkError(f"--before {arguments.before}: there is no package vllm_router in it")
        names.append("before")
    scenarios = [fit(scenario) for scenario in SCENARIOS if scenario.name in arguments.scenarios]
    if arguments.smoke:
        scenarios = [scenario.small() for scenario in scenarios]
    described = describe(peers)
    described["load average"] = f"{os.getloadavg()[0]:.1f} at the start"
    described["cores"] = (
        f"proxy on {cores[0]}, load on {cores[1]}" if cores else "not bound: there is only one"
    )
    for key, value in described.items():
        print(f"{key}: {value}")
    if "Release" not in described["build"] and not arguments.smoke:
        print("THIS IS NOT A RELEASE BUILD: its figures mean nothing.")
    each = arguments.seconds + arguments.warmup + 0.3
    print(
        f"{arguments.rounds} rounds, about {arguments.rounds * len(scenarios) * len(names) * each:.0f} s\n",
        flush=True,
    )

    with (
        terminated_is_interrupted(),
        tempfile.TemporaryDirectory(prefix="vllm-router-bench-") as directory,
        Processes() as processes,
    ):
        outcome = compare(
            arguments, Bench(processes, Path(directory), cores, arguments.before), names, scenarios
        )
    described["load average"] += f", {os.getloadavg()[0]:.1f} at the end"
    outcome["about"] = described
    target = arguments.json or BUILD / ("end_to_end_smoke.json" if arguments.smoke else "end_to_end.json")
    target.write_text(json.dumps(outcome, indent=1) + "\n")
    print(f"all rows: {target}")
    return not any(
        row["errors"]["all"]
        for rows in outcome["rows"].values()
        for each_row in rows.values()
        for row in each_row
    )


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    try:
        return 0 if run(arguments) else 1
    except BenchmarkError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("run.py: interrupted; everything it started has ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
