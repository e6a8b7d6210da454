"""The slow twin of cpp/events/source_state.h, told in seconds: all live batches queue, and the queue is
worked off whenever nothing is under way. It keeps every batch and computes what is missing from them."""

from dataclasses import dataclass, field

NEVER = float("inf")
MAX_LOST = 1 << 20


@dataclass
class Replay:
    decides: str  # what its first response decides: "nothing", "same_engine", "reaches_back"
    opened: float | None = None  # None: not yet
    heard: float = 0.0
    left: float = 30.0
    attempts: int = 1
    rounds: int = 0
    next: int = 0  # of the source, when it was last requested
    delayed_until: float | None = None  # not requested yet


@dataclass
class SourceState:
    has_replay: bool
    max_held_batches: int = 4096
    max_held_bytes: int = 64 << 20
    applied: list[tuple[int, bytes]] = field(default_factory=list)  # of this incarnation, in order
    next: int = 0
    known_from: int = 0  # all of the incarnation's batches from here on are in `applied`
    cleared: int | None = None
    begun: bool = False  # first contact is over
    partial: bool = False
    queue: list[tuple[int, bytes]] = field(default_factory=list)
    replay: Replay | None = None
    restart_waits: tuple[str, float] | None = None  # cause, until
    connected: bool = False
    left_at: float = 0.0
    evidence: bool = False
    doubt: bool = False
    replay_ended: float = -NEVER
    retry: bool = False
    backoff: float = 0.0
    backoff_until: float = -NEVER
    starts: float = -NEVER  # the allowance of 4 is full from here on
    again: int | None = None
    incarnations: int = 0
    gaps: int = 0
    actions: list[tuple] = field(default_factory=list)

    # What is told

    def take(self) -> list[tuple]:
        taken, self.actions = self.actions, []
        return taken

    def trust(self) -> str:
        if not self.begun or self.restart_waits:
            return "waiting"
        return "partial" if self.partial else "exact"

    def busy(self) -> bool:
        return self.replay is not None or self.restart_waits is not None

    def next_tick(self) -> float:
        if self.restart_waits:
            return self.restart_waits[1]
        if self.replay is None:
            return self.backoff_until if self.retry and self.connected else NEVER
        if self.replay.delayed_until is not None:
            return self.replay.delayed_until
        if self.replay.opened is None:
            return NEVER
        return min(self.replay.heard + 2, self.replay.opened + self.replay.left)

    # Events

    def on_connected(self, now):
        self.on_disconnected(now)
        self.connected, self.backoff_until = True, -NEVER
        if self.restart_waits:
            return
        if self.has_replay:
            if self.next == 0:  # nothing is known: as at first
                self.begun = self.partial = self.retry = False
            self.begin("same_engine" if self.next else "nothing", now)
        elif self.begun and now - self.left_at > 2:
            self.doubt = True

    def on_disconnected(self, now):
        if self.connected:
            self.connected, self.left_at = False, now
            self.queue = []
            self.drop_replay()

    def on_batch(self, number, payload, now):
        if number == 2**64 - 1:
            return
        early = self.busy() or not self.begun or number != self.next
        if self.has_replay and not self.connected and early:
            return
        self.queue.append((number, payload))
        self.work_off(now)
        size = sum(len(held) for _, held in self.queue)
        if len(self.queue) > self.max_held_batches or size > self.max_held_bytes:
            if self.restart_waits:
                self.queue = []
            else:
                self.fail(now)

    def on_evidence(self, now):
        if self.next == 0:
            return
        self.evidence = True
        if not self.has_replay:
            self.doubt = True
        elif self.connected and not self.busy():
            self.begin("same_engine", now)

    def on_replay_started(self, now):
        replay = self.replay
        if replay and replay.delayed_until is None and replay.opened is None:
            replay.opened = replay.heard = now

    def on_replay_batch(self, number, payload, now):
        if self.replay is None or self.replay.opened is None:
            return
        self.replay.heard = now
        if self.replay.decides == "same_engine":
            last = dict(self.applied[-64:]).get(self.next - 1)
            if number < self.next - 1:
                self.restart("sequence", now)
                return
            if number == self.next - 1 and last not in (None, payload):
                self.restart("digest", now)
                return
            if number >= self.next or last is None:  # it proves nothing
                if self.evidence:
                    self.restart("evidence", now)
                    return
                self.missing_before(self.next)
            self.evidence = False
        elif self.replay.decides == "reaches_back":
            self.retry = False
            if self.applied and number > (self.applied[0][0] if self.cleared is None else self.cleared):
                self.end(now)
                return
            self.new_incarnation("reset")
        self.replay.decides = "nothing"
        if number >= self.next:
            if number > self.next:
                self.missing_before(number)
            self.apply(number, payload)

    def on_replay_end(self, now):
        if self.replay is None or self.replay.opened is None:
            return
        if self.replay.decides == "same_engine":
            self.restart("end_mark", now)
            return
        if self.replay.decides == "reaches_back":
            self.retry = False
            if not self.applied:
                self.partial = False
        self.end(now)

    def on_tick(self, now):
        if now < self.next_tick():
            return
        if self.restart_waits:
            self.restart(self.restart_waits[0], now)
            self.work_off(now)
        elif self.replay is None:
            self.begin("reaches_back", now)
        elif self.replay.delayed_until is not None:
            self.allowed(now)
            self.request()
        else:
            self.replay.left -= now - self.replay.opened
            if self.replay.left <= 0 or self.replay.attempts == 3:
                self.fail(now)
            else:
                self.replay.attempts += 1
                self.request()

    def on_cleared(self, number):
        self.cleared = number
        if number >= self.known_from:
            self.partial = self.retry = False

    def on_malformed(self, number, now):
        usable = self.has_replay and self.connected and not self.busy() and now >= self.backoff_until
        if usable and number == self.next - 1 and number != self.again:
            self.again = self.next = number
            self.begin("nothing", now)
        elif number >= self.known_from:
            self.missing_before(number + 1)

    def on_reset(self, cause, now):
        self.restart(cause, now)
        self.work_off(now)

    # Steps

    def apply(self, number, payload):
        self.applied.append((number, payload))
        self.next = number + 1
        self.actions.append(("apply", number, payload))

    def missing_before(self, number):
        self.partial, self.known_from = True, number
        self.gaps += 1

    def work_off(self, now):
        while self.queue and not self.busy():
            number, payload = self.queue[0]
            if self.begun and number < self.next:
                recent = dict(self.applied[-64:])
                if number in recent:
                    duplicate = recent[number] == payload
                else:
                    older = not recent or number < min(recent)
                    duplicate = older and now - self.replay_ended < 10
                if duplicate:
                    self.doubt = self.evidence = False
                    self.queue.pop(0)
                else:
                    self.restart("sequence", now)
                continue
            if self.begun and self.next and number - self.next > MAX_LOST:
                self.restart("sequence", now)
                continue
            if self.begun and self.doubt:
                self.doubt = False
                if self.evidence:
                    self.restart("evidence", now)
                    continue
                self.missing_before(number)
            if number > self.next:
                if self.has_replay and self.connected and now >= self.backoff_until:
                    self.begin("nothing", now)
                    continue
                self.missing_before(number)
            self.begun = True
            self.queue.pop(0)
            self.apply(number, payload)

    def allowed(self, now) -> float | None:
        """None: yes, and it is taken. Else when."""
        if now < self.starts - 3:
            return self.starts - 3
        self.starts = max(self.starts, now) + 1
        return None

    def begin(self, decides, now):
        self.replay = Replay(decides, delayed_until=self.allowed(now))
        if self.replay.delayed_until is None:
            self.request()

    def request(self):
        start = {"nothing": self.next, "same_engine": self.next - 1, "reaches_back": 0}
        self.replay.opened = self.replay.delayed_until = None
        self.replay.next = self.next
        self.actions.append(("start_replay", start[self.replay.decides]))

    def drop_replay(self):
        if self.replay and self.replay.delayed_until is None:
            self.actions.append(("stop_replay",))
        self.replay = None

    def end(self, now):
        """It ended by itself."""
        replay, begun = self.replay, self.begun
        self.drop_replay()
        self.replay_ended, self.begun = now, True
        while self.queue and not self.busy() and self.queue[0][0] <= self.next:
            held = self.queue
            self.queue = held[:1]
            self.work_off(now)
            self.queue += held[1:]
        hole = self.queue and not self.busy()
        if hole and (replay.rounds < 2 or self.next <= replay.next):
            self.begun = begun
            replay.left -= now - replay.opened
            replay.decides, replay.delayed_until = "nothing", now  # its socket is closed
            self.replay = replay
            if replay.rounds == 2:
                self.fail(now)
                return
            replay.rounds += 1
            self.request()
            return
        self.backoff = 0.0
        if not self.retry:
            self.backoff_until = -NEVER
        if hole:
            self.work_off(now)
        if self.evidence and self.connected and self.next and not self.busy():
            self.begin("same_engine", now)

    def fail(self, now):
        rebuilds = self.replay.decides == "reaches_back"
        self.drop_replay()
        self.replay_ended, self.begun, self.retry = now, True, True
        if not rebuilds:
            self.missing_before(self.next)
        self.backoff = min(max(2 * self.backoff, 10.0), 300.0)
        self.backoff_until = now + self.backoff
        if self.evidence:
            self.evidence = False
            self.restart("evidence", now)
        self.work_off(now)

    def restart(self, cause, now):
        self.drop_replay()
        self.restart_waits = None
        later = self.allowed(now)
        if later is not None:
            self.restart_waits = (cause, later)
            return
        self.new_incarnation(cause)
        if self.has_replay and self.connected:
            self.replay = Replay("nothing")
            self.request()

    def new_incarnation(self, cause):
        self.incarnations += 1
        self.gaps += 1
        self.applied, self.next, self.known_from, self.cleared = [], 0, 0, None
        self.begun = self.partial = self.evidence = self.doubt = self.retry = False
        self.again, self.replay_ended = None, -NEVER
        self.actions.append(("new_incarnation", cause))
