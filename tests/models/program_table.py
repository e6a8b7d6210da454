"""The slow twin of cpp/admission/program_table.h: lists of programs that are searched each time."""

from __future__ import annotations

from dataclasses import dataclass, field

UNKNOWN = 2**50


@dataclass
class Settings:
    """Those of a line of cpp/admission/program_settings.h that decide."""

    mode: str = "on"
    fill: float = 0.9
    ttl_ms: int = 60_000
    forget_ms: int = 1_800_000
    tenant_most: int = 0
    worker_most: int = 0

    def line(self) -> str:
        """As the core reads it."""
        return (
            f"{self.mode} fill={self.fill} ttl_ms={self.ttl_ms} forget_ms={self.forget_ms} "
            f"max_active_per_tenant={self.tenant_most} max_active_per_worker={self.worker_most}"
        )


@dataclass
class Turn:
    """One request."""

    number: int
    prompt: int
    output: int
    waits: bool = False
    worker: int = 0
    claim: int = 0


@dataclass
class Program:
    """A program that the table knows."""

    name: tuple[int, int]  # pool, program
    tenant: int
    weight: float
    of_class: int
    start: int
    since_ms: int  # of its last end, or of the pause
    tokens: int = 0
    shared: int = 0
    has_run: bool = False
    is_final: bool = False
    overlaps: bool = False
    worker: int | None = None
    is_active: bool = False
    open: list[Turn] = field(default_factory=list)
    waiting: list[Turn] = field(default_factory=list)
    paused_as: int = 0  # its number in the order of pauses

    @property
    def held(self) -> int:
        return self.tokens + sum(turn.claim for turn in self.open)

    def need_of(self, turn: Turn) -> int:
        return max(self.tokens, max(0, turn.prompt - self.shared) + turn.output)

    @property
    def need(self) -> int:
        return self.tokens + sum(self.need_of(turn) - self.tokens for turn in self.waiting)


Worker = tuple[int, int, int, float]  # id, capacity, context, rate


class ProgramTable:
    """`told` has the turns that were resumed, but for those whose begin() says so."""

    def __init__(self, most: int, settings: Settings) -> None:
        self.most, self.settings = most, settings
        self.programs: dict[tuple[int, int], Program] = {}
        self.of_turn: dict[int, Program] = {}
        self.turns: dict[int, Turn] = {}
        self.weights: dict[tuple[int, int, int], float] = {}
        self.ttls: dict[int, int] = {}
        self.told: list[int] = []
        self.started = self.pauses = self.forgotten = 0
        self.paused_by = {"full": 0, "ttl": 0, "worker_gone": 0}
        went = ("active", "resumed", "waited", "forced", "passed", "would_wait")
        self.went = dict.fromkeys(went, 0)

    # ---- what there is

    def active_at(self, worker: int) -> list[Program]:
        return [one for one in self.programs.values() if one.is_active and one.worker == worker]

    def prompts_at(self, worker: int) -> int:
        return sum(
            turn.prompt for one in self.programs.values() for turn in one.open if turn.worker == worker
        )

    def group(self, program: Program) -> tuple[int, int, int]:
        return program.name[0], program.of_class, program.tenant

    def share(self, program: Program) -> float:
        group = self.group(program)
        tokens = sum(one.held for one in self.programs.values() if one.is_active and self.group(one) == group)
        return tokens / self.weights[group]

    def fits(self, program: Program, need: int, worker: Worker) -> bool:
        number, capacity, context, _ = worker
        others = [one for one in self.active_at(number) if one is not program]
        if not others:
            return True
        if self.settings.worker_most and len(others) >= self.settings.worker_most:
            return False
        rest = max(0, context - self.prompts_at(number))
        held = sum(one.held for one in others)
        return capacity == 0 or held + rest + need <= int(self.settings.fill * capacity)

    def fits_nowhere(self, program: Program, workers: list[Worker]) -> bool:
        return all(
            capacity and program.need > int(self.settings.fill * capacity) for _, capacity, _, _ in workers
        )

    def best(self, program: Program, workers: list[Worker], forced: bool) -> int | None:
        for worker in workers:
            if worker[0] == program.worker and self.fits(program, program.need, worker):
                return worker[0]
        best, most = None, (False, 0)
        for worker in workers:
            number, capacity, context, _ = worker
            fits = self.fits(program, program.need, worker)
            used = sum(one.held for one in self.active_at(number))
            used += max(0, context - self.prompts_at(number))
            left = (fits, (int(self.settings.fill * capacity) if capacity else UNKNOWN) - used)
            if (fits or forced) and (best is None or left > most):
                best, most = number, left
        return best

    # ---- changes of one program

    def find(
        self, pool: int, name: int, tenant: int, weight: float, of_class: int, now: int
    ) -> Program | None:
        program = self.programs.get((pool, name))
        if program is None:
            if len(self.programs) >= self.most and not self.make_room():
                return None
            self.started += 1
            program = Program((pool, name), tenant, weight, of_class, self.started, now)
            self.programs[program.name] = program
            self.set_paused(program, now)
        elif not program.waiting:
            program.of_class = of_class
        group = self.group(program)
        members = [one for one in self.programs.values() if self.group(one) == group]
        if group not in self.weights or not any(one.waiting for one in members):
            self.weights[group] = weight
        return program

    def make_room(self) -> bool:
        idle = [one for one in self.programs.values() if not one.open and not one.waiting]
        if not idle:
            return False
        paused = [one for one in idle if not one.is_active]
        first = (
            min(paused, key=lambda one: one.paused_as)
            if paused
            else min(idle, key=lambda one: (one.since_ms, one.start))
        )
        self.forgotten += 1
        del self.programs[first.name]
        return True

    def set_paused(self, program: Program, now: int) -> None:
        self.pauses += 1
        program.paused_as, program.since_ms = self.pauses, now

    def pause(self, program: Program, why: str, now: int) -> None:
        self.paused_by[why] += 1
        program.is_active = False
        self.set_paused(program, now)

    def start(self, program: Program, turn: Turn) -> None:
        turn.claim = program.need_of(turn) - program.tokens
        turn.worker = program.worker if program.worker is not None else 0
        program.overlaps = program.overlaps or bool(program.open)
        program.open.append(turn)

    def resume(self, program: Program, worker: int, went: str) -> None:
        turns, program.waiting = program.waiting, []
        program.is_active, program.worker = True, worker
        for turn in turns:
            turn.waits = False
            self.start(program, turn)
            self.went[went] += 1
            self.told.append(turn.number)

    def give_up(self, program: Program, now: int) -> None:
        """It has no turn any more, and is paused."""
        self.set_paused(program, now)
        if not program.has_run:
            del self.programs[program.name]

    def pass_by(self, program: Program, now: int) -> None:
        turns, program.waiting = program.waiting, []
        for turn in turns:
            turn.waits = False
            self.of_turn.pop(turn.number)
            self.went["passed"] += 1
            self.told.append(turn.number)
        self.give_up(program, now)

    # ---- those that wait

    def next_of(self, pool: int) -> Program | None:
        waiting = [one for one in self.programs.values() if one.waiting and one.name[0] == pool]
        if self.settings.tenant_most:
            waiting = [one for one in waiting if self.active_of(one.tenant) < self.settings.tenant_most]
        key = lambda one: (one.of_class, self.share(one), one.tenant, one.start)  # noqa: E731
        return min(waiting, key=key, default=None)

    def active_of(self, tenant: int) -> int:
        return sum(one.is_active for one in self.programs.values() if one.tenant == tenant)

    def pump(self, pool: int, workers: list[Worker], now: int) -> None:
        if not workers:
            while waiting := [one for one in self.programs.values() if one.waiting and one.name[0] == pool]:
                self.pass_by(
                    min(waiting, key=lambda one: (one.of_class, self.share(one), one.tenant, one.start)), now
                )
            return
        self.resume_what_fits(pool, workers, now)
        if any(one.waiting and one.name[0] == pool for one in self.programs.values()):
            self.end_ttls(workers, now)
            self.resume_what_fits(pool, workers, now)

    def resume_what_fits(self, pool: int, workers: list[Worker], now: int) -> None:
        while (program := self.next_of(pool)) is not None:
            worker = self.best(program, workers, forced=False)
            if worker is not None:
                self.resume(program, worker, "waited")
            elif self.fits_nowhere(program, workers):
                self.pass_by(program, now)
            else:
                return

    def end_ttls(self, workers: list[Worker], now: int) -> None:
        for number, *_ in workers:
            ttl = self.ttls.get(number, self.settings.ttl_ms)
            late = [one for one in self.active_at(number) if not one.open and now - one.since_ms > ttl]
            for one in sorted(late, key=lambda one: (one.since_ms, one.start)):
                self.pause(one, "ttl", now)

    # ---- turns

    def begin(
        self,
        number: int,
        program: int,
        pool: int,
        tenant: int,
        weight: float,
        of_class: int,
        prompt: int,
        output: int,
        workers: list[Worker],
        now: int,
    ) -> str:
        turn = self.turns[number] = Turn(number, prompt, output)
        known = None
        if self.settings.mode != "off" and workers:
            known = self.find(pool, program, tenant, weight, of_class, now)
        if known is None:
            self.went["passed"] += 1
            return "passed"
        self.of_turn[number] = known
        if known.is_active:
            if known.open or any(worker[0] == known.worker for worker in workers):
                self.start(known, turn)
                self.went["active"] += 1
                return "active"
            self.pause(known, "worker_gone", now)
        turn.waits = True
        known.waiting.append(turn)
        before = len(self.told)
        self.pump(pool, workers, now)
        if turn.waits and self.fits_nowhere(known, workers):
            self.pass_by(known, now)
        elif turn.waits and self.settings.mode == "observe":
            worker = self.best(known, workers, forced=True)
            assert worker is not None
            self.resume(known, worker, "would_wait")
        elif self.is_counted(number):
            self.went["waited"] -= 1
            self.went["resumed"] += 1
        self.told[before:] = [other for other in self.told[before:] if other != number]
        if number not in self.of_turn:
            return "passed"
        return "waits" if turn.waits else "resumed"

    def is_counted(self, number: int) -> bool:
        return number in self.of_turn and not self.turns[number].waits

    def bind(self, number: int, worker: int) -> None:
        if self.is_counted(number):
            self.turns[number].worker = worker
            if len(self.of_turn[number].open) == 1:
                self.of_turn[number].worker = worker

    def end(
        self,
        number: int,
        use: tuple[int, int, int] | None,
        final: bool,
        workers: list[Worker],
        now: int,
    ) -> None:
        if not self.is_counted(number):
            return
        program = self.of_turn.pop(number)
        program.open.remove(self.turns[number])
        program.is_final = program.is_final or final
        if use is not None:
            prompt, cached, output = use
            if not program.has_run:
                program.has_run, program.shared = True, min(cached, prompt)
            tokens = max(0, prompt - program.shared) + output
            program.tokens = max(program.tokens, tokens) if program.overlaps else tokens
        worker = program.worker
        if not program.open:
            program.overlaps, program.since_ms = False, now
            if program.is_final or not program.has_run:
                del self.programs[program.name]
        for number_there, capacity, *_ in workers:
            while number_there == worker and capacity:
                active = self.active_at(number_there)
                acting = [one for one in active if not one.open]
                if sum(one.held for one in active) <= int(self.settings.fill * capacity) or not acting:
                    break
                self.pause(max(acting, key=lambda one: one.start), "full", now)
        if workers:
            self.pump(program.name[0], workers, now)

    def leave(self, number: int, now: int) -> bool:
        turn = self.turns[number]
        if not turn.waits:
            return False
        turn.waits = False
        program = self.of_turn.pop(number)
        program.waiting.remove(turn)
        if not program.waiting:
            self.give_up(program, now)
        return True

    def force(self, number: int, workers: list[Worker], now: int) -> bool:
        if not self.turns[number].waits:
            return False
        program = self.of_turn[number]
        worker = self.best(program, workers, forced=True)
        if worker is None:
            self.pass_by(program, now)
        else:
            self.resume(program, worker, "forced")
        return True

    def follow(self, settings: Settings, now: int) -> None:
        self.settings = settings
        while settings.mode != "on" and (waiting := [one for one in self.programs.values() if one.waiting]):
            self.pass_by(
                min(
                    waiting,
                    key=lambda one: (one.name[0], one.of_class, self.share(one), one.tenant, one.start),
                ),
                now,
            )

    def follow_fleet(self, workers: list[Worker], now: int) -> None:
        self.ttls = {worker[0]: self.settings.ttl_ms for worker in workers}
        acting = [one for one in self.programs.values() if one.is_active and not one.open]
        for one in sorted(acting, key=lambda one: (one.worker, one.start)):
            if one.worker not in self.ttls:
                self.pause(one, "worker_gone", now)
        old = [
            one
            for one in self.programs.values()
            if not one.open and not one.waiting and now - one.since_ms >= self.settings.forget_ms
        ]
        for one in old:
            self.forgotten += 1
            del self.programs[one.name]

    def read(self) -> dict[str, object]:
        active = [one for one in self.programs.values() if one.is_active]
        places = {one.worker for one in active}
        places |= {turn.worker for one in self.programs.values() for turn in one.open}
        workers = {}
        for number in sorted(place for place in places if place is not None):
            there = self.active_at(number)
            workers[number] = (
                sum(one.held for one in there),
                len(there),
                sum(not one.open for one in there),
            )
        return {
            "reasoning": sum(bool(one.open) for one in active),
            "acting": sum(not one.open for one in active),
            "waiting": sum(bool(one.waiting) for one in self.programs.values()),
            "paused": sum(not one.is_active and not one.waiting for one in self.programs.values()),
            "forgotten": self.forgotten,
            "paused_by": self.paused_by,
            "went": self.went,
            "workers": workers,
        }
