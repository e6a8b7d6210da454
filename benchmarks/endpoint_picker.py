"""What the endpoint picker costs for each request, how soon it chooses, and whether as the proxy does.

    PYTHONPATH=build/release/python:. python -m benchmarks.endpoint_picker
    ... -m benchmarks.endpoint_picker --published        # ten minutes: 98.7 requests/s of 100,000 tokens
    ... -m benchmarks.endpoint_picker --parts equal --policies cache_aware --equal 1000

The gateway is ext_proc_client.py, in this process; the router is a process of its own, whose CPU is that of
all its threads. All workers are one more process, which listens at every address that begins with 127. Health
checks are off.

    cpu     microseconds of the router for each request. The rows differ in the body of the request, in how
            many are sent at once, and in the events of the response that are sent to the picker; the
            documented configuration, `response_body_mode: NONE`, sends none
    rate    requests that begin at fixed times, each of which stays open for --output-secs after its choice.
            The time of a choice runs from the last frame of the request; *decided* is the router's own time
            for the decision, as a bound of a bucket of its histogram `overhead_seconds`. No prompt comes
            twice
    equal   the same conversations through a proxy and through a picker with the same seed, one request after
            the other: ends with status 1 if one of them gets another worker
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import random
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.ext_proc_client import Gateway
from benchmarks.own_endpoints import (
    RESPONSE,
    Worker,
    free_port,
    get,
    raise_file_limit,
    running,
    serve_as_workers,
    url_of,
    wait_for,
)
from benchmarks.pairs import cpu_us
from tests.fakes.data_plane import DUPLEX, NONE, head, post, response_body, response_head

PARTS = ("cpu", "rate", "equal")
POLICIES = ("round_robin", "random", "least_load", "consistent_hash", "cache_aware")
CHAT = "/v1/chat/completions"
LARGE = 400_000  # bytes of a body: 100,000 tokens
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": " word"}}]}\n\n'
MARK = b"0123456789012345"  # where the number of a request stands in its prompt
PUBLISHED = {"workers": 100, "rate": 98.7, "seconds": 600.0, "output_secs": [10.0]}


# ---- the processes


class NamedWorker(Worker):
    """Answers with the address and the port at which it was asked."""

    def response(self) -> bytes:
        host, port = self.transport.get_extra_info("sockname")
        body = json.dumps(
            {"object": "list", "data": [{"id": "m", "object": "model"}], "at": f"{host}:{port}"}
        )
        return RESPONSE % (len(body), body.encode())


class Router(NamedTuple):
    pid: int
    port: int
    epp_port: int

    def metric(self, name: str) -> float:
        (found,) = re.findall(rf"^vllm_router_{re.escape(name)} (\S+)$", self.metrics(), re.MULTILINE)
        return float(found)

    def metrics(self) -> str:
        return get(self.port, "/metrics").decode()

    def peak_mib(self) -> float:
        (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(found) / 1024


@contextlib.contextmanager
def fleet(count: int) -> Iterator[list[str]]:
    """The URLs of so many workers."""
    command = [sys.executable, "-m", "benchmarks.endpoint_picker", "--serve"]
    with running(command) as workers:
        assert workers.stdout is not None
        port = int(workers.stdout.readline())
        yield [url_of(number, port) for number in range(count)]


@contextlib.contextmanager
def router(urls: Sequence[str], policy: str, *more: str) -> Iterator[Router]:
    """Once it serves. Its metrics are on its port for requests."""
    port, epp_port = free_port(), free_port()
    command = [
        sys.executable, "-m", "vllm_router", "--host", "127.0.0.1", "--port", str(port),
        "--prometheus-port", str(free_port()), "--epp-host", "127.0.0.1", "--epp-port", str(epp_port),
        "--policy", policy, "--threads", "1", "--health-check-interval-secs", "0", "--kv-events", "off",
        "--model-refresh-secs", "0", "--log-level", "error", *more, "--worker-urls", *urls,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:  # where its access log goes
        try:
            wait_for(process, port)
            yield Router(process.pid, port, epp_port)
        finally:
            process.kill()


# ---- requests


def chat_of(size: int, dice: random.Random) -> bytes:
    """A chat of so many bytes, whose prompt begins with MARK."""
    around = len(json.dumps({"model": "m", "messages": [{"role": "user", "content": ""}]}))
    words = "".join(
        f"{dice.choice('bcdfglmnprst')}{dice.choice('aeiou')}{dice.randrange(1000)} "
        for _ in range(size // 4)
    )
    text = (MARK.decode() + " " + words)[: size - around]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


class Template(NamedTuple):
    """The messages of a request, each time with another number in its prompt."""

    messages: tuple[bytes, ...]
    body_bytes: int  # that come back

    @classmethod
    def of(cls, size: int) -> Template:
        if size == 0:
            fields = {"content-type": "application/json"}
            return cls((head(method="POST", path=CHAT, fields=fields, mode=NONE).SerializeToString(),), 0)
        data = chat_of(size, random.Random(size))
        messages = tuple(message.SerializeToString() for message in post(data, mode=DUPLEX))
        return cls(messages, len(data))

    def numbered(self, number: int) -> tuple[bytes, ...]:
        return tuple(message.replace(MARK, b"%016d" % number, 1) for message in self.messages)


RESPONSE_HEAD = response_head(200, fields={"content-type": "text/event-stream"}).SerializeToString()


# ---- CPU of a request


class Case(NamedTuple):
    name: str
    size: int  # of the body
    at_once: int = 1
    events: int = 0  # of the response
    wanted_us: float | None = None


CASES = (
    Case("no body", 0),
    Case("no body", 0, at_once=16),
    Case("1 KB", 1_000),
    Case("1 KB", 1_000, at_once=16, wanted_us=80),
    Case("400 KB", LARGE),
    Case("400 KB", LARGE, at_once=4, wanted_us=500),
    Case("1 KB, 100 events sent", 1_000, events=100),
    Case("1 KB, 1,000 events sent", 1_000, events=1_000),
)
CPU_COLUMNS = ("request", "at once", "requests", "router, us", "wanted", "choice p50, p99 ms")


def serve(gateway: Gateway, template: Template, numbers: range, case: Case) -> list[float]:
    """Requests, so many at once. Returns the seconds of each choice."""
    event = response_body(EVENT, end=False).SerializeToString()
    taken = []
    for first in range(numbers.start, numbers.stop, case.at_once):
        some = range(first, min(first + case.at_once, numbers.stop))
        streams = [gateway.begin(*template.numbered(number)) for number in some]
        taken += [gateway.picked(stream, template.body_bytes).seconds for stream in streams]
        for stream in streams:
            gateway.send(stream, RESPONSE_HEAD)
        for stream in streams:
            gateway.wait(stream, 1)
            for _ in range(case.events):
                gateway.send(stream, event)
            gateway.wait(stream, case.events)
            gateway.send(stream, end=True)
        for stream in streams:
            gateway.finish(stream)
    return taken


def print_cpu(urls: Sequence[str], options: argparse.Namespace) -> None:
    print("| " + " | ".join(CPU_COLUMNS) + " |\n" + "|--:" * len(CPU_COLUMNS) + "|", flush=True)
    with router(urls, options.policy) as target, Gateway(target.epp_port) as gateway:
        found: dict[Case, tuple[list[float], list[float]]] = {case: ([], []) for case in CASES}
        first = 0
        for round_ in range(-1, options.rounds):  # the first one is not like the others
            for case, (costs, times) in found.items():
                count = max(1, options.requests // max(1, case.size // 40_000, case.events // 10))
                count = count if round_ >= 0 else max(1, count // 10)
                numbers = range(first, first + count)
                first += count
                before = cpu_us(target.pid)
                taken = serve(gateway, Template.of(case.size), numbers, case)
                if round_ >= 0:
                    costs.append((cpu_us(target.pid) - before) / count)
                    times += taken
        for case, (costs, times) in found.items():
            wanted = f"{case.wanted_us:.0f}" if case.wanted_us else ""
            seconds = shown(times) if case.at_once == 1 else ""
            cost = f"{statistics.median(costs):.0f}"
            cells = (case.name, str(case.at_once), f"{len(times):,}", cost, wanted, seconds)
            print("| " + " | ".join(cells) + " |", flush=True)
        check_over(target, first)


def shown(seconds: Sequence[float], *, most: bool = False) -> str:
    """Median, 99th percentile and, with `most`, the longest, in milliseconds."""
    ordered = sorted(seconds)
    found = [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], *(ordered[-1:] if most else [])]
    return ", ".join(f"{1e3 * one:.2f}" for one in found)


def check_over(target: Router, picked: int) -> None:
    """All requests have had a worker, and none is open.

    Raises:
        RuntimeError: one has not.
    """
    left, count = target.metric("epp_streams"), target.metric('epp_picks_total{result="picked"}')
    loads = sum(
        float(one)
        for one in re.findall(r"^vllm_router_worker_load\S* (\S+)$", target.metrics(), re.MULTILINE)
    )
    if (left, count, loads) != (0, picked, 0):
        raise RuntimeError(
            f"of {picked} requests {count:.0f} were picked, {left:.0f} are open, load {loads:.0f}"
        )


# ---- requests at a rate


class Rate(NamedTuple):
    """What was found."""

    seconds: list[float]  # of choices
    late: list[float]  # when a request began, after it should have
    most_open: int
    took: float
    cpu_us: float


def at_rate(target: Router, template: Template, rate: float, seconds: float, output_secs: float) -> Rate:
    """Requests that begin `rate` times in a second."""
    count = max(1, round(rate * seconds))
    taken: list[float] = []
    late: list[float] = []
    most_open = 0
    open_ones: list[tuple[float, int, Gateway, int]] = []  # a heap by their ends
    streams = max(1, -(-int(rate * output_secs * 1.5) // 900))  # the picker allows 1,024 on a connection

    def end_until(moment: float) -> None:
        while open_ones and open_ones[0][0] <= moment:
            when, _, gateway, stream = heapq.heappop(open_ones)
            time.sleep(max(0.0, when - time.perf_counter()))
            gateway.send(stream, end=True)
            gateway.finish(stream)

    with contextlib.ExitStack() as stack:
        gateways = [stack.enter_context(Gateway(target.epp_port)) for _ in range(streams)]
        before, begun = cpu_us(target.pid), time.perf_counter()
        for number in range(count):
            due = begun + number / rate
            end_until(due)
            time.sleep(max(0.0, due - time.perf_counter()))
            late.append(max(0.0, time.perf_counter() - due))
            gateway = gateways[number % streams]
            picked = gateway.pick(*template.numbered(number), body_bytes=template.body_bytes)
            taken.append(picked.seconds)
            gateway.send(picked.stream, RESPONSE_HEAD)
            gateway.wait(picked.stream, 1)
            heapq.heappush(open_ones, (time.perf_counter() + output_secs, number, gateway, picked.stream))
            most_open = max(most_open, len(open_ones))
        spent, took = cpu_us(target.pid) - before, time.perf_counter() - begun
        end_until(float("inf"))
    return Rate(taken, late, most_open, took, spent)


def decided_ms(page: str) -> str:
    """The bound of the bucket of `overhead_seconds` that holds the 99th percentile, in milliseconds."""
    buckets = [
        (float(bound), int(count))
        for bound, count in re.findall(
            r'^vllm_router_overhead_seconds_bucket\{le="([^"]+)"\} (\d+)$', page, re.MULTILINE
        )
    ]
    if not buckets or buckets[-1][1] == 0:
        return "-"
    return next(f"{1e3 * bound:g}" for bound, count in buckets if count >= 0.99 * buckets[-1][1])


RATE_COLUMNS = (
    "output, s", "requests", "open at once", "router, us", "of a core", "choice p50, p99, at most ms",
    "decided p99 ms", "begun late p99 ms", "memory MiB",
)  # fmt: skip


def print_rate(urls: Sequence[str], options: argparse.Namespace) -> None:
    print(f"\n{options.rate:g} requests/s of {options.kb} KB, {len(urls)} workers, {options.policy}:\n")
    print("| " + " | ".join(RATE_COLUMNS) + " |\n" + "|--:" * len(RATE_COLUMNS) + "|", flush=True)
    template = Template.of(options.kb * 1000)
    for output_secs in options.output_secs:
        with router(urls, options.policy) as target:
            found = at_rate(target, template, options.rate, options.seconds, output_secs)
            count = len(found.seconds)
            cells = (
                f"{output_secs:g}", f"{count:,}", f"{found.most_open:,}", f"{found.cpu_us / count:.0f}",
                f"{found.cpu_us / 1e6 / found.took:.4f}", shown(found.seconds, most=True),
                decided_ms(target.metrics()), f"{1e3 * sorted(found.late)[count * 99 // 100]:.1f}",
                f"{target.peak_mib():.0f}",
            )  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)
            check_over(target, count)


# ---- the same choices


class Client:
    """One connection to a proxy."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def served_by(self, data: bytes, fields: dict[str, str]) -> str:
        lines = [
            f"POST {CHAT} HTTP/1.1",
            "Host: x",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
        ]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        self._socket.sendall("\r\n".join([*lines, "", ""]).encode() + data)
        came = b""
        while True:
            more = self._socket.recv(1 << 16)
            if not more:
                raise RuntimeError("the proxy closed the connection")
            came += more
            begin, end, body = came.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", begin)
            if end and length and len(body) >= int(length[1]):
                break
        if not begin.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(came.decode())
        return str(json.loads(body)["at"])

    def close(self) -> None:
        self._socket.close()


def conversations(count: int, seed: int) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Requests of chats that grow, and begin anew; half of them name a session, a tenth cannot be read."""
    dice = random.Random(seed)
    texts = [f"conversation {number} " * 40 for number in range(40)]
    for _ in range(count):
        number = dice.randrange(len(texts))
        texts[number] += dice.choice(("and then", "why", "so it was")) * 20
        if len(texts[number]) > 20_000:
            texts[number] = f"another {dice.random()} " * 40
        data = json.dumps({"model": "m", "messages": [{"role": "user", "content": texts[number]}]}).encode()
        if dice.random() < 0.1:
            data = b"{" + data
        yield data, ({"x-session-id": str(number)} if number % 2 else {})


def differences(urls: Sequence[str], policy: str, count: int) -> int:
    """Requests, of so many, that the picker sends elsewhere than the proxy."""
    found = 0
    with contextlib.ExitStack() as stack:
        proxy, picker = (stack.enter_context(router(urls, policy, "--seed", "7")) for _ in range(2))
        client = Client(proxy.port)
        stack.callback(client.close)
        gateway = stack.enter_context(Gateway(picker.epp_port))
        for data, fields in conversations(count, seed=1):
            served = client.served_by(data, fields)
            messages = [message.SerializeToString() for message in post(data, fields=fields)]
            picked = gateway.pick(*messages, body_bytes=len(data))
            gateway.send(picked.stream, RESPONSE_HEAD, end=True)
            gateway.finish(picked.stream)
            found += picked.endpoint != served
        check_over(picker, count)
    return found


def print_equal(urls: Sequence[str], options: argparse.Namespace) -> bool:
    print("\n| policy | requests | other worker than the proxy's |\n|---|--:|--:|", flush=True)
    equal = True
    for policy in options.policies:
        found = differences(urls, policy, options.equal)
        equal = equal and found == 0
        print(f"| `{policy}` | {options.equal:,} | {found:,} |", flush=True)
    return equal


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table for each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--policy", default="auto", help="of `cpu` and `rate`")
    parser.add_argument("--requests", type=int, default=2_000, help="of 1 KB in a round of `cpu`")
    parser.add_argument("--rounds", type=int, default=3, help="of `cpu`")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rate", type=float, default=100.0, help="requests in a second")
    parser.add_argument("--kb", type=int, default=LARGE // 1000, help="of a body, at a rate")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each row of `rate`")
    parser.add_argument("--output-secs", type=float, nargs="+", default=[0.1, 5.0], help="a row for each")
    parser.add_argument("--equal", type=int, default=10_000, help="requests with each of --policies")
    parser.add_argument("--policies", nargs="+", default=POLICIES, help="of `equal`")
    parser.add_argument(
        "--published", action="store_true", help=f"the part `rate`, with {PUBLISHED}; others are as given"
    )
    options = parser.parse_args(arguments)
    if options.published:
        options.parts = ("rate",)
        vars(options).update(PUBLISHED)
    raise_file_limit()
    equal = True
    with fleet(options.workers) as urls:
        prints: dict[str, Callable[[], object]] = {
            "cpu": lambda: print_cpu(urls, options),
            "rate": lambda: print_rate(urls, options),
        }
        for part in options.parts:
            if part == "equal":
                equal = print_equal(urls, options)
            else:
                prints[part]()
    return 0 if equal else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_as_workers(NamedWorker)
    else:
        sys.exit(main())
