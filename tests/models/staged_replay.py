"""A fleet of prefill and decode workers, step by step: when requests end, given which workers serve them."""

import dataclasses
import math

from tests.models.engine import Options, Request, SlowEngine

PICOS = 10**12


@dataclasses.dataclass
class Served:
    """One request: what is known of it, and what becomes of it."""

    arrival: int
    prompt_tokens: int
    output_tokens: int
    names: list[int]
    prompt_blocks: int
    prefill: int | None
    """None: decode computes the prompt itself."""
    decode: int
    first_token: int | None = None
    end: int | None = None
    hit: int = 0
    fetched: int = 0


class StagedFleet:
    """Engines by number, prefill first. A link of an engine carries one transfer at a time."""

    def __init__(
        self, engines: list[Options], bytes_per_token: float, gb_per_s: float, latency_ms: float
    ) -> None:
        self.engines = [SlowEngine(options) for options in engines]
        self.per_token = math.floor(bytes_per_token / (gb_per_s * 1e9) * PICOS + 0.5)
        self.latency = math.floor(latency_ms * 1e9 + 0.5)
        self.link_free = [0] * len(engines)
        self.later: list[tuple[int, int, str, int]] = []  # time, order, what, request
        self.planned = 0

    def play(self, requests: list[Served]) -> None:
        """All of them to their ends."""
        self.requests = requests
        self.of_prefill: dict[int, Request] = {}
        self.of_decode: dict[int, Request] = {}
        for row, request in enumerate(requests):
            self.plan(request.arrival, "arrive", row)
        while self.later or any(engine.end is not None for engine in self.engines):
            ends = [(e.end, number) for number, e in enumerate(self.engines) if e.end is not None]
            if ends and (not self.later or min(ends)[0] <= min(self.later)[0]):
                now, number = min(ends)
                self.hear(number, self.engines[number].advance_to(now))
                continue
            # Arrivals are planned first, and yet come last of what is at one time.
            event = min(self.later, key=lambda event: (event[0], event[2] == "arrive", event[1]))
            self.later.remove(event)
            now, _, what, row = event
            self.do(what, row, now)

    def plan(self, time: int, what: str, row: int) -> None:
        self.later.append((time, self.planned, what, row))
        self.planned += 1

    def do(self, what: str, row: int, now: int) -> None:
        request = self.requests[row]
        is_pair = request.prefill is not None
        if what == "arrive" and is_pair:
            names = request.names[: request.prompt_blocks]
            prompt = Request(row, request.prompt_tokens, 1, names, request.prompt_blocks, is_held=True)
            self.of_prefill[row] = prompt
            self.submit(request.prefill, prompt, now)
        elif what in ("arrive", "hand_over"):
            whole = Request(
                row,
                request.prompt_tokens,
                request.output_tokens,
                request.names,
                request.prompt_blocks,
                is_fetched=is_pair,
            )
            self.of_decode[row] = whole
            self.submit(request.decode, whole, now)
        else:
            self.engines[request.prefill].release_held(self.of_prefill[row], now)
            self.engines[request.decode].blocks_came(self.of_decode[row], now)
            # Requests may be admitted by either, and their transfers begin in the order of the engines.
            for number in sorted({request.prefill, request.decode}):
                self.hear(number, self.engines[number].advance_to(now - 1))

    def submit(self, number: int, request: Request, now: int) -> None:
        self.engines[number].submit(request, now)
        self.hear(number, self.engines[number].advance_to(now - 1))

    def hear(self, number: int, events: list[tuple[str, int, int, int]]) -> None:
        for kind, row, hit, time in events:
            request = self.requests[row]
            if kind == "fetch":
                request.fetched = request.prompt_tokens - hit
                begin = max(time, self.link_free[request.prefill], self.link_free[number])
                end = begin + request.fetched * self.per_token
                self.link_free[request.prefill] = self.link_free[number] = end
                self.plan(end + self.latency, "arrived", row)
            elif number == request.prefill:
                if kind == "finished":
                    request.hit = hit
                    self.plan(time, "hand_over", row)
            elif kind == "first_token":
                request.first_token = time
                if request.prefill is None:
                    request.hit = hit
            else:
                request.end = time
