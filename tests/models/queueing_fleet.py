"""A fleet of engines that queue, and clients that come in bursts: what HangDetector sees, by its own clock.

    fleet = QueueingFleet(testing.HangDetector(), workers=4, seed=1)
    fleet.run(3600)
    fleet.doubts        [(when, worker, …)]

An engine computes prompts one after the other (`PREFILL` bytes a second), and up to SLOTS requests generate
at once, a token each ITL. A stream's first byte comes with its first token, a plain response's with its last.
The router sends a request to the worker with the fewest open ones, or, of a session, to its own.
"""

import heapq
import random

TICK = 0.5
PREFILL = 100_000.0  # bytes a second: 25,000 tokens
ITL = 0.02
SLOTS = 64


class Request:
    def __init__(self, sent, kind, size, tokens, client):
        self.sent, self.kind, self.size, self.tokens, self.client = sent, kind, size, tokens, client


class Engine:
    def __init__(self):
        self.queue = []  # not computed yet
        self.running = []  # heap of (end, number, request); a stream has had its first byte
        self.plain = []  # plain ones of these
        self.free = 0.0  # when the prompt that is computed is done
        self.computing = None
        self.slow = 1.0
        self.frozen = False

    def open(self):
        return len(self.queue) + (self.computing is not None) + len(self.running)

    def waits(self):
        return [*self.queue, *([self.computing] if self.computing else []), *self.plain]


class QueueingFleet:
    def __init__(self, detector, workers=4, seed=1, sessions=0.3, books=0.02):
        self.detector, self.random, self.sessions, self.books = detector, random.Random(seed), sessions, books
        self.engines = [Engine() for _ in range(workers)]
        self.now = 0.0
        self.number = 0
        self.out = set()  # in doubt
        self.doubts = []
        self.requests = 0
        self.next_arrival = 0.0
        self.rate = 2.0
        self.rate_until = 0.0

    # ---- clients

    def next_rate(self):
        """Lulls, steady traffic and bursts, by turns."""
        self.rate = self.random.choice((0.05, 1.0, 3.0, 3.0, 12.0, 30.0))
        self.rate_until = self.now + self.random.uniform(5, 90) / max(1, self.rate / 6)

    def new_request(self):
        draw = self.random.random()
        client = self.random.randrange(1, 9)
        if draw < self.books:
            return Request(self.now, "stream", self.random.randrange(400_000, 900_000), 200, client)
        if draw > 0.9:  # a long text at once
            return Request(self.now, "plain", self.random.randrange(500, 8_000), 4_096, client)
        if draw > 0.7:
            return Request(self.now, "plain", self.random.randrange(500, 20_000), 300, client)
        return Request(self.now, "stream", int(self.random.lognormvariate(8.5, 1.2)), 250, client)

    def send(self, request):
        able = [i for i in range(len(self.engines)) if i not in self.out]
        if self.random.random() < self.sessions:
            chosen = able[request.client % len(able)]
        else:
            chosen = min(able, key=lambda i: (self.engines[i].open(), self.random.random()))
        self.requests += 1
        self.engines[chosen].queue.append(request)

    # ---- engines

    def advance(self, i):
        engine = self.engines[i]
        if engine.frozen:
            return
        while engine.running and engine.running[0][0] <= self.now:
            end, _, request = heapq.heappop(engine.running)
            if request.kind == "plain":
                engine.plain.remove(request)
                self.first_byte(i, request, end)
            self.detector.touch(i, end)
        while True:
            if engine.computing is not None:
                if engine.free > self.now:
                    break
                request, engine.computing = engine.computing, None
                if request.kind == "stream":
                    self.first_byte(i, request, engine.free)
                else:
                    engine.plain.append(request)
                self.number += 1
                end = engine.free + request.tokens * ITL * engine.slow
                heapq.heappush(engine.running, (end, self.number, request))
            if not engine.queue or len(engine.running) >= SLOTS:
                break
            engine.computing = engine.queue.pop(0)
            begun = max(engine.free, engine.computing.sent)
            engine.free = begun + (0.03 + engine.computing.size / PREFILL) * engine.slow
        if any(request.kind == "stream" for _, _, request in engine.running):
            self.detector.touch(i, self.now)

    def first_byte(self, i, request, when):
        self.detector.count_first_byte(
            i, request.kind, request.size, when - request.sent, request.client, when
        )

    # ---- the router

    def look(self):
        rows = [
            (i, 0, True, i in self.out, i in self.out, len(engine.waits()))
            for i, engine in enumerate(self.engines)
        ]
        for i in self.detector.observe(self.now, rows):
            waits = [(wait.kind, wait.size, wait.sent, wait.client) for wait in self.engines[i].waits()]
            doubt = self.detector.judge(i, waits, self.now)
            if doubt is not None:
                self.doubts.append((self.now, i, *doubt))
                self.out.add(i)

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            tick = self.now + TICK
            while self.next_arrival < tick:
                self.now = self.next_arrival
                if self.now >= self.rate_until:
                    self.next_rate()
                for i in range(len(self.engines)):
                    self.advance(i)
                self.send(self.new_request())
                self.next_arrival += self.random.expovariate(self.rate)
            self.now = tick
            for i in range(len(self.engines)):
                self.advance(i)
            self.look()
