"""The dashboard's page with events that are played instead of a router's: the same picture each time.

with PlayedRouter(healthy()) as router:
    browser.get(router.url)
"""

from __future__ import annotations

import http.server
import importlib.util
import json
import math
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "cpp" / "proxy" / "dashboard" / "page"
SECONDS = 600

Events = list[tuple[str, dict[str, Any]]]


def page() -> bytes:
    """As the build embeds it."""
    spec = importlib.util.spec_from_file_location("embed_page", ROOT / "cmake" / "embed_page.py")
    assert spec is not None
    assert spec.loader is not None
    embed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(embed)
    text, _, _ = embed.join(*(PAGE / f"dashboard.{kind}" for kind in ("html", "css", "js")))
    return str(text).encode()


def wave(at: float, seed: float) -> float:
    """A number around 0 that looks measured."""
    return math.sin(at / 37 + seed) + 0.6 * math.sin(at / 15 + 2 * seed) + 0.35 * math.sin(at / 4 + seed)


def point(now: float, age: int, *, in_trouble: bool = False) -> list[float]:
    """(t, requests, p50, p95, cached, expected, waiting) of `age` seconds ago."""
    at = SECONDS - age
    bad = max(0.0, (at - 480) / 120) if in_trouble else 0.0
    waits = max(0.0, 5 * bad + (2 * math.sin(at / 9) if bad else 0)) if in_trouble else 2.0 * (200 < at < 230)
    return [
        now - age,
        round(205 + 7 * wave(at, 1), 1),
        round(92 + 5 * wave(at, 3) + 40 * bad, 1),
        round(398 + 22 * wave(at, 2) + 290 * bad, 1),
        round(0.74 + 0.012 * wave(at, 4) - 0.13 * bad, 3),
        round(0.765 + 0.011 * wave(at, 4.2) - 0.13 * bad, 3),
        round(waits),
    ]


def worker(number: int, **other: Any) -> dict[str, Any]:
    """A row of a worker that serves."""
    open_ = [27, 31, 22, 25, 24, 29, 23, 21][number % 8]
    row = {
        "id": number,
        "url": f"http://gpu-{number}:8000",
        "state": "serves",
        "open": open_,
        "queued": [1240, 3810, 0, 410, 920, 2130, 690, 0][number % 8],
        "p50_ms": 66 + open_,
        "p95_ms": 215 + 7.5 * open_,
        "cached": round(0.6 + open_ / 150, 3),
        "attempts": 40 * open_,
        "errors": 0,
    }
    return row | other


def receipt(now: float, number: int, **other: Any) -> dict[str, Any]:
    """A receipt of a chat that went where most of its prompt is."""
    made = {
        "request_id": f"chatcmpl-4YPokyhFHavqvgd9aBquj0{number:02}",
        "ts": time.strftime("%Y-%m-%dT%H:%M:%S.123Z", time.gmtime(now - number)),
        "model": "qwen3-32b",
        "route": "/v1/chat/completions",
        "policy": "auto",
        "reason": "lowest_cost",
        "worker": "http://gpu-1:8000",
        "arm": "policy",
        "predicted_cached_tokens": 8192,
        "reported_cached_tokens": 8104,
        "prompt_tokens": 8340,
        "miss_tokens": 88,
        "best_match": {"worker": "http://gpu-1:8000", "cached_tokens": 8192},
        "foregone_tokens": 0,
        "load": {"open": 4, "best_open": 4, "queued_tokens": 210},
        "queue_ms": 0.0,
        "decision_us": 14,
        "ttft_ms": 61.2,
        "attempts": 1,
        "end": "done",
        "status": 200,
    }
    return made | other


def receipts(now: float) -> list[dict[str, Any]]:
    """From old to new."""
    urls = [f"http://gpu-{number}:8000" for number in range(8)]
    costs = [(3, 4, 1740, 12.1), (1, 9, 1888, 14.7), (7, 2, 0, 31.0), (2, 3, 0, 31.9)]
    candidates = [
        {"worker": urls[n], "open": open_, "cached_tokens": cached, "cost": cost}
        for n, open_, cached, cost in costs
    ]
    newest = {
        "worker": urls[3],
        "predicted_cached_tokens": 1740,
        "reported_cached_tokens": 1712,
        "prompt_tokens": 1893,
        "best_match": {"worker": urls[1], "cached_tokens": 1888},
        "foregone_tokens": 148,
        "load": {"open": 4, "best_open": 9, "queued_tokens": 210},
        "candidates": candidates,
        "ttft_ms": 88.4,
    }
    unknown = {"predicted_cached_tokens": 0, "reported_cached_tokens": 0}
    made = [
        receipt(now, 0, **newest),
        receipt(now, 0),
        receipt(now, 1, worker=urls[7], route="/v1/messages", prompt_tokens=2210, ttft_ms=240.0, **unknown),
        receipt(
            now,
            1,
            worker=urls[0],
            route="/v1/responses",
            predicted_cached_tokens=30976,
            reported_cached_tokens=20480,
            prompt_tokens=31300,
            ttft_ms=702.0,
        ),
        receipt(now, 2, worker=urls[2], reason="holdout", prompt_tokens=4033, ttft_ms=395.0, **unknown),
        receipt(
            now,
            2,
            worker=urls[4],
            predicted_cached_tokens=512,
            reported_cached_tokens=None,
            prompt_tokens=655,
            ttft_ms=70.0,
        ),
        receipt(now, 3, worker=urls[5], reported_cached_tokens=8192, ttft_ms=58.0),
        receipt(now, 3, worker=urls[6], prompt_tokens=9120, ttft_ms=96.0),
    ]
    return made[::-1]


HOLDOUT = {
    "percent": 1.0,
    "policy": "auto",
    "baseline": "least_load",
    "since": "2026-11-24T08:00:00.000Z",
    "stopped": None,
    "conversations": {"policy": 41203, "holdout": 408, "open": 312},
    "reported_share": 0.92,
    "cached_share": {
        "policy": 0.71,
        "holdout": 0.39,
        "difference": 0.32,
        "interval": [0.27, 0.37],
        "conclusive": True,
    },
    "ttft_ratio": {"estimate": 0.84, "interval": [0.70, 1.01], "conclusive": False, "holdout_needed": 1900},
    "first_turn_ttft_ratio": None,
    "failure_ratio": {"estimate": 1.0, "interval": [0.4, 2.6], "conclusive": False},
    "saved_prompt_tokens_per_day": [2.1e9, 2.9e9],
}


def tick(now: float, rows: list[dict[str, Any]], conditions: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of a tick of this fleet."""
    in_trouble = bool(conditions)
    sentence = conditions[0]["text"] if conditions else f"All {len(rows)} workers serve."
    if len(conditions) > 1:
        sentence += f" And {len(conditions) - 1} more."
    return {
        "sentence": sentence,
        "point": point(now, 0, in_trouble=in_trouble),
        "facts": {
            "requests": 124_310,
            "failed": 0,
            "retried": 31 if in_trouble else 0,
            "in_flight": sum(row["open"] for row in rows),
            "p99_ms": 1400.0,
            "overhead_us": 22.0,
            "reporting": 0.92,
            "longest_wait_ms": 50.0,
        },
        "conditions": conditions,
        "receipts": {"shown": 18, "skipped": 194},
        "workers": [],
    }


def play(rows: list[dict[str, Any]], conditions: list[dict[str, Any]] | None = None) -> Events:
    """The first events of a viewer."""
    now = time.time()
    found = conditions or []
    hello = {
        "version": "0.2.0",
        "router": "router-1",
        "policy": "auto",
        "started": now - 6 * 86_400,
        "receipts": True,
        "queue_limit": 4096,
        "history": [point(now, age, in_trouble=bool(found)) for age in range(SECONDS, 0, -1)],
        "holdout": True,
    }
    shown = [("receipt", each) for each in receipts(now)]
    return [("hello", hello), ("fleet", {"workers": rows}), *shown, ("tick", tick(now, rows, found))]


def healthy() -> Events:
    """Eight workers serve."""
    return play([worker(number) for number in range(8)])


def trouble() -> Events:
    """One worker is down, and another drains."""
    rows = [worker(number) for number in range(8)]
    gone = {"p50_ms": None, "p95_ms": None, "cached": None}
    rows[5] |= {"state": "unhealthy", "open": 0, "queued": 0, "errors": 31, **gone}
    rows[6] |= {"state": "draining", "open": 6, "queued": 0}
    text = f"{rows[5]['url']} fails its health checks. 6 other workers take its requests."
    condition = {
        "condition": "worker_is_down",
        "severity": "ticket",
        "since": time.time() - 125,
        "text": text,
        "worker": rows[5]["url"],
    }
    return play(rows, [condition])


def large() -> Events:
    """A hundred workers, one of which drains."""
    rows = [worker(number, url=f"http://gpu-{number}.llm.svc.cluster.local:8000") for number in range(100)]
    rows[70] |= {"state": "draining", "open": 3}
    return play(rows)


class PlayedRouter:
    """Serves the page and the events until the block ends."""

    def __init__(self, events: Events) -> None:
        text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        stop = self._stop = threading.Event()
        document = page()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kinds = {"/dashboard": "text/html; charset=utf-8", "/dashboard/events": "text/event-stream"}
                body = {"/dashboard": document, "/dashboard/events": text.encode()}
                self.send_response(200)
                self.send_header("Content-Type", kinds.get(self.path, "application/json"))
                self.end_headers()
                self.wfile.write(body.get(self.path, json.dumps(HOLDOUT).encode()))
                self.wfile.flush()
                if self.path == "/dashboard/events":
                    stop.wait()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/dashboard"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> PlayedRouter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
