"""What does it cost that routers tell each other, and how soon does each know?

    PYTHONPATH=build/release/python:. python -m benchmarks.peer_sync                        about four minutes
    ... python -m benchmarks.peer_sync --parts request thread --decisions 20000

`request`: a decision of `auto` about a prompt of 12,000 tokens, with and without peer sync, in turns.
`thread`: the CPU of the control threads of a router that decides so often, and of one that hears it.
`known`: processes with a real Redis; the time until all know a prompt that one was sent.
`outage`: Redis killed under load, and back: failed requests, and the time until routers meet again.
`limit`: a rate limit of several processes, with all traffic at one of them, and evenly; what all admitted,
    and the smallest and the largest part of a router, where 1 is an equal one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import vllm_router._core
from tests.fakes.redis_server import RedisServer
from tests.fakes.router_process import RouterProcess
from vllm_router import Router

PARTS = ("request", "thread", "known", "outage", "limit")
BLOCK = 16
TOKENS = 12_000
WORKERS = 64
# Nothing is there, and no name is looked up.
URLS = [f"http://127.0.0.{2 + number}:9" for number in range(WORKERS)]
QUIET = {"port": 0, "threads": 1, "log_level": "warn", "health_check_interval_secs": 0}
BUILD = Path(vllm_router._core.__file__).resolve().parents[2]
UPSTREAM = BUILD / "benchmarks" / "end_to_end" / "upstream"


def prompts(count: int, tokens: int = TOKENS, seed: int = 1) -> list[list[int]]:
    """Prompts of which a third goes on from another."""
    draw = random.Random(seed)
    made: list[list[int]] = []
    for _ in range(count):
        begin = draw.choice(made)[: tokens // 2] if made and draw.random() < 1 / 3 else []
        made.append(begin + [draw.randrange(100_000) for _ in range(tokens - len(begin))])
    return made


def router(redis_url: str | None) -> tuple[Router, Any]:
    """A router over workers that do not exist, and its server."""
    strides = {} if redis_url is None else {"peer_sync_stride_tokens": 256}
    made = Router("auto", URLS, seed=1, max_blocks_per_worker=434_000 // BLOCK, **strides)
    connected = {} if redis_url is None else {"peer_sync": redis_url}
    return made, made.serve(**QUIET, **connected)


def cost_of_a_request(redis: RedisServer, decisions: int, tokens: int) -> dict[str, Any]:
    """CPU time of this thread for select and finish, in microseconds."""
    ids = [np.array(one, np.uint32) for one in prompts(200, tokens)]
    pairs = []
    rounds = 7
    with contextlib.ExitStack() as stack:
        plain, told = (router(None), router(redis.url))
        for _, server in (plain, told):
            stack.enter_context(server)
        for _ in range(rounds):
            times = []
            for made, _ in (plain, told):
                begun = time.thread_time()
                for number in range(decisions // rounds):
                    made.select(token_ids=ids[number % len(ids)]).finish()
                times.append((time.thread_time() - begun) / (decisions // rounds) * 1e6)
            pairs.append(times)
    before, after = (statistics.median(row[side] for row in pairs) for side in (0, 1))
    return {
        "tokens": tokens,
        "without_us": before,
        "with_us": after,
        "more_us": statistics.median(b - a for a, b in pairs),
    }


def cpu_of_threads(pid: int) -> dict[int, float]:
    """Seconds by thread."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            seconds[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def hear(url: str, pipe: Any) -> None:
    """A router that makes no decisions, in a process of its own, until the pipe says something."""
    _, server = router(url)
    with server:
        pipe.send(os.getpid())
        while pipe.recv() == "figures":
            pipe.send(figures_of(server.metrics()))
    pipe.send(None)


def figures_of(text: str) -> dict[str, float]:
    """Values of the metrics of peer sync."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("vllm_router_peer_sync"))
    return {name.removeprefix("vllm_router_peer_sync_"): float(value) for name, value in rows}


def cost_of_the_thread(redis: RedisServer, rate: int, seconds: float) -> dict[str, Any]:
    """Shares of a core, and what went through Redis, at so many decisions a second."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=hear, args=(redis.url, there), daemon=True)
    process.start()
    pid = here.recv()
    ids = prompts(500)
    made, server = router(redis.url)
    with server:
        time.sleep(2)  # they meet
        own = threading.get_native_id()

        def others(of: int) -> float:
            return sum(cpu for task, cpu in cpu_of_threads(of).items() if task != own)

        begun, cpu, heard = time.monotonic(), others(os.getpid()), others(pid)
        first = figures_of(server.metrics())
        done = 0
        late = 0.0
        while (now := time.monotonic() - begun) < seconds:
            due = int(now * rate)
            while done < due:
                made.select(token_ids=ids[done % len(ids)]).finish()
                done += 1
            late = max(late, time.monotonic() - begun - now)
            time.sleep(0.001)
        taken = time.monotonic() - begun
        cpu, heard = others(os.getpid()) - cpu, others(pid) - heard
        last = figures_of(server.metrics())
        time.sleep(1)
        here.send("figures")
        applied = here.recv()
    here.send("stop")
    here.recv()
    process.join(10)
    sent = last['bytes_total{direction="out"}'] - first['bytes_total{direction="out"}']
    return {
        "decisions_per_s": done / taken,
        "sender_share": cpu / taken,
        "receiver_share": heard / taken,
        "sent_mb_per_s": sent / taken / 1e6,
        "applied": applied['decisions_total{result="applied"}'],
        "decided": done,
    }


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    """The URL of a worker that costs next to nothing."""
    with subprocess.Popen([UPSTREAM, "--port", "0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        process.terminate()


@contextlib.contextmanager
def processes(
    count: int, folder: Path, redis: RedisServer, workers: list[str], *more: str
) -> Iterator[list[Any]]:
    """So many routers, which hear each other."""
    flags = ["--policy", "auto", "--log-level", "warn", "--worker-urls", *workers]
    flags += ["--peer-sync", redis.url, "--threads", "1", *more]
    with contextlib.ExitStack() as stack:
        started = []
        for number in range(count):
            one = RouterProcess(folder, *flags, "--log-level", "info", "--router-name", f"r{number}")
            stack.callback(one.__exit__)
            started.append(one)
        for one in started:
            one.wait()
        for one in started:
            while one.metric("peer_sync_peers", state="live") < count - 1:
                time.sleep(0.05)
        yield started


def chat(router: RouterProcess, text: str) -> int:
    """The status."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
    return router.call("POST", "/v1/chat/completions", body, admin=False)[0]


def known(count: int, folder: Path, redis: RedisServer, times: int) -> dict[str, Any]:
    """Seconds until all others have applied a decision of one."""
    took = []
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(upstream()) for _ in range(4)]
        routers = stack.enter_context(processes(count, folder, redis, workers))
        draw = random.Random(1)

        def applied(one: RouterProcess) -> float:
            return one.metric("peer_sync_decisions_total", result="applied")

        for number in range(times):
            one = draw.choice(routers)
            others = [other for other in routers if other is not one]
            before = {id(other): applied(other) for other in others}
            assert chat(one, f"{number} " + "word " * 2000) == 200
            begun = time.monotonic()
            for other in others:
                while applied(other) == before[id(other)]:
                    time.sleep(0.005)
            took.append(time.monotonic() - begun)
    took.sort()
    return {
        "routers": count,
        "median_s": statistics.median(took),
        "p95_s": took[int(len(took) * 0.95)],
        "worst_s": took[-1],
    }


def outage(folder: Path, redis: RedisServer) -> dict[str, Any]:
    """Four routers under load; Redis is killed for 8 s."""
    statuses: dict[int, int] = {}
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(upstream()) for _ in range(4)]
        routers = stack.enter_context(processes(4, folder, redis, workers))
        ended = threading.Event()

        def send(one: RouterProcess) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", one.port, timeout=30)
            number = 0
            while not ended.is_set():
                body = json.dumps(
                    {"messages": [{"role": "user", "content": f"{number % 50} " + "word " * 500}]}
                )
                connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                statuses[response.status] = statuses.get(response.status, 0) + 1
                number += 1
                time.sleep(0.005)

        threads = [threading.Thread(target=send, args=(one,), daemon=True) for one in routers]
        for thread in threads:
            thread.start()
        time.sleep(2)
        redis.kill()
        time.sleep(8)
        alone = [one.metric("peer_sync_alone") for one in routers]
        redis.start()
        begun = time.monotonic()
        while any(one.metric("peer_sync_up") == 0 for one in routers):
            time.sleep(0.02)
        back = time.monotonic() - begun
        time.sleep(2)
        ended.set()
        for thread in threads:
            thread.join()
        live = [one.metric("peer_sync_peers", state="live") for one in routers]
    return {"statuses": statuses, "alone": alone, "back_s": back, "live": live}


def pour(ports: list[int], rate: int, seconds: float, pipe: Any) -> None:
    """Requests at a rate to each port, in a process of its own; what each admitted per second after 3 s."""
    admitted = dict.fromkeys(ports, 0)

    async def send(port: int, begun: float, every: float, first: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"messages":[{"role":"user","content":"x"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        due = begun + first
        while due < begun + 3 + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
            assert length is not None
            await reader.readexactly(int(length[1]))
            admitted[port] += answer.startswith(b"HTTP/1.1 200") and time.monotonic() > begun + 3
            due += every
        writer.close()

    async def all_of_them() -> None:
        begun, connections = time.monotonic(), 32
        await asyncio.gather(
            *(
                send(port, begun, connections / rate, number / rate)
                for port in ports
                for number in range(connections)
            )
        )

    asyncio.run(all_of_them())
    pipe.send([count / seconds for count in admitted.values()])


def limit(
    folder: Path, redis: RedisServer, count: int, even: bool, interval_ms: int, seconds: float
) -> dict[str, Any]:
    """Requests per second that a limit of 1,000/s admitted, after its burst."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(upstream()) for _ in range(2)]
        flags = ("--rate-limit-tokens-per-second", "1000", "--peer-sync-interval-ms", str(interval_ms))
        routers = stack.enter_context(processes(count, folder, redis, workers, *flags))
        ports = [one.port for one in (routers if even else routers[:1])]
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=pour, args=(ports, 1600 // len(ports), seconds, there), daemon=True)
        process.start()
        figures = here.recv()
        process.join(10)
    mean = sum(figures) / len(figures)
    return {
        "routers": count,
        "even": even,
        "interval_ms": interval_ms,
        "admitted_per_s": sum(figures),
        "least_part": min(figures) / mean,
        "greatest_part": max(figures) / mean,
    }


def main(argv: list[str] | None = None) -> None:
    """Print a line of JSON for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--decisions", type=int, default=14_000, help="of `request`")
    parser.add_argument("--rate", type=int, default=10_000, help="decisions a second of `thread`")
    parser.add_argument("--seconds", type=float, default=10, help="of `thread` and `limit`")
    parser.add_argument("--routers", type=int, nargs="+", default=[2, 4, 16], help="of `known`")
    parser.add_argument("--times", type=int, default=40, help="prompts of `known`")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as redis:
        folder = Path(name)

        def show(part: str, figures: dict[str, Any]) -> None:
            rounded = {
                key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()
            }
            print(json.dumps({"part": part, **rounded}), flush=True)

        if "request" in args.parts:
            for tokens in (256, 1_500, TOKENS):
                show("request", cost_of_a_request(redis, args.decisions, tokens))
        if "thread" in args.parts:
            show("thread", cost_of_the_thread(redis, args.rate, args.seconds))
        for count in args.routers if "known" in args.parts else ():
            show("known", known(count, folder, redis, args.times))
        if "outage" in args.parts:
            show("outage", outage(folder, redis))
        cases = [(4, False, 250), (4, True, 250), (2, True, 250), (16, True, 250), (4, True, 2000)]
        for case in cases if "limit" in args.parts else ():
            show("limit", limit(folder, redis, *case, args.seconds))


if __name__ == "__main__":
    sys.exit(main())
