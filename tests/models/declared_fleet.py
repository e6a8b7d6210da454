"""The slow twin of the declared fleet: sources say what their whole list is, and the fleet follows.

Its methods and answers are those of `_core_testing.Registry`. RefusedError means that nothing has changed.
URLs are of the form http://host:port/@rank, of which port, slash and rank may be missing; others are the
subject of tests/unit/worker/test_worker_url.py.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

BY_HAND = ("static", "api")
WRITTEN = ("static", "file")  # by people, who mean what they write
FIRST_SOURCES = ("file", "kubernetes", "dns", "registration")
MAX_LISTED = 4096


class RefusedError(ValueError):
    """Nothing has changed."""


class Spec(NamedTuple):
    """A row of a source's list."""

    url: str
    weight: float = 1.0
    ready: bool = True
    leaving: bool = False
    drain_secs: float | None = None
    incarnation: str = ""


class Address(NamedTuple):
    """What a URL means, however it is spelled."""

    host: str
    rank: str


URL = re.compile(r"http://([a-z0-9.-]+)(:\d+)?/?(@\d+)?", re.IGNORECASE)


def address(url: str) -> Address:
    match = URL.fullmatch(url)
    if match is None:
        raise RefusedError(f"not a URL: {url}")
    host, port, rank = match.groups()
    return Address(host.lower() + (port or ":80"), rank or "")


def spelled(url: str) -> str:
    """A URL as it is kept: without the slash."""
    return re.sub(r"/?(@\d+)?$", r"\1", url)


def thousandths(weight: float) -> int:
    if not 0.01 <= weight <= 100:
        raise RefusedError(f"bad weight: {weight}")
    return round(weight * 1000)


Role = tuple[str, int | None, str]  # worker type, bootstrap port and kv_group


@dataclass(eq=False)
class Row:
    """A worker that a source declares, or that was added by hand."""

    url: str
    weight: int
    owners: list[str]
    place: float = math.inf  # in the list of the settings
    id: int = -1  # another one with each start
    ready: bool = True
    leaving: bool = False
    drain_secs: float | None = None
    incarnation: str = ""
    state: str = "pending"
    draining: bool = False
    healthy: bool = True
    held: bool = False
    replaced: bool = False  # held until others have joined
    overdue: bool = False  # it left although others were still awaited
    kept_out: bool = False  # drained by an admin
    worker_id: int | None = None
    last_owner: str = ""  # while it has none
    role: Role = ("regular", None, "")

    @property
    def address(self) -> Address:
        return address(self.url)

    @property
    def serves(self) -> bool:
        return self.state == "serving"

    @property
    def resting(self) -> bool:
        return self.serves and not self.ready


def means(named: Address, row: Row) -> bool:
    """Without a rank it means all of the host."""
    return named.host == row.address.host and named.rank in ("", row.address.rank)


@dataclass
class Hold:
    """Of a worker that a source's list takes away with others, more of them than one believes at once."""

    since: float
    syncs: int = 0


@dataclass
class Difference:
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def change(method: Callable[P, T]) -> Callable[P, T]:
    """Afterwards the rows are in fleet order. Those of equal rank keep the order that they had."""

    @functools.wraps(method)
    def changing(*args: P.args, **kwargs: P.kwargs) -> T:
        answer = method(*args, **kwargs)
        fleet: DeclaredFleet = args[0]  # type: ignore[assignment]
        fleet.declared = fleet.in_order()
        return answer

    return changing


class DeclaredFleet:
    def __init__(self, guard: float = 0.5, hold_secs: float = 60.0, staged: bool = False) -> None:
        self.guard = guard
        self.hold_secs = hold_secs
        self.is_staged = staged
        self.named_roles: dict[str, Role] = {}  # by URL as it is spelled
        self.is_managed = False
        self.declared: list[Row] = []  # in the order of the last change, and those that came since
        self.lists: dict[str, tuple[list[Spec], bool]] = {}  # and whether they were complete
        self.list_roles: dict[str, dict[str, Role]] = {}  # by source, by URL
        self.holds: dict[str, dict[str, Hold]] = {}  # by source, by URL
        self.waits: dict[str, dict[int, float]] = {}  # by source: since when a row of its list waits, by id
        self.models: dict[str, list[str]] = {}  # by host, as it has listed them
        self.last_time = 0.0
        self.next_row_id = 0
        self.next_worker_id = 0

    # What is declared of a worker besides, from now on.

    def set_role(self, url: str, worker_type: str, port: int | None = None, kv_group: str = "") -> None:
        self.named_roles[url] = worker_type, port, kv_group

    def role_of(self, url: str) -> Role:
        """RefusedError for a worker that this fleet cannot have."""
        role = self.named_roles.get(url, ("prefill" if self.is_staged else "regular", None, ""))
        if (role[0] != "regular") != self.is_staged:
            raise RefusedError(f"{url} is {role[0]}")
        return role

    def role_when(self, source: str, url: str) -> Role:
        """What the last list of a source says, as the URL was spelled there."""
        return self.list_roles[source][url]

    def is_of_other_stage(self, row: Row, source: str, role: Role) -> bool:
        return row.role[0] != role[0] and any(owner != source for owner in row.owners)

    def roles(self) -> list[tuple[str, str, int | None]]:
        return [(row.url, *row.role[:2]) for row in self.serving()]

    def set_models(self, url: str, names: Iterable[tuple[str, str]]) -> None:
        self.models[address(url).host] = [name for name, _ in names]

    # What it answers.

    def in_order(self) -> list[Row]:
        """All rows in fleet order."""

        def key(row: Row) -> tuple[int, str, float, bytes]:
            owner = row.owners[0] if row.owners else row.last_owner
            if owner in BY_HAND:
                return (0, "", row.place, b"")
            if owner in FIRST_SOURCES:
                return (1 + FIRST_SOURCES.index(owner), "", 0, row.url.encode())
            return (1 + len(FIRST_SOURCES), owner, 0, row.url.encode())

        return sorted(self.declared, key=key)

    def rows(self) -> list[tuple[str, str, list[str], bool, bool, bool, bool, int, int | None]]:
        return [
            (
                row.url,
                row.state,
                list(row.owners),
                row.held,
                row.serves and row.draining,
                row.resting,
                row.healthy or not row.serves,
                row.weight,
                row.worker_id if row.serves else None,
            )
            for row in self.in_order()
        ]

    def serving(self) -> list[Row]:
        return [row for row in self.in_order() if row.serves]

    def members(self) -> list[tuple[str, int | None, int, bool, bool, bool]]:
        return [
            (row.url, row.worker_id, row.weight, row.healthy, row.draining, self.is_eligible(row))
            for row in self.serving()
        ]

    @staticmethod
    def is_eligible(row: Row) -> bool:
        return row.serves and row.healthy and not row.draining and not row.resting

    def eligible(self) -> list[int]:
        return [position for position, row in enumerate(self.serving()) if self.is_eligible(row)]

    def pending(self) -> list[tuple[int, str]]:
        return [(row.id, row.url) for row in self.in_order() if row.state == "pending" and row.ready]

    def leaving(self) -> list[tuple[int | None, str, float | None]]:
        return [(row.worker_id, row.url, row.drain_secs) for row in self.in_order() if self.leaves(row)]

    @staticmethod
    def leaves(row: Row) -> bool:
        return row.serves and row.draining and (row.leaving or not row.owners)

    # Lists.

    @change
    def reconcile(
        self,
        source: str,
        rows: Sequence[tuple[str, float, bool, bool, float | None, str]] | None,
        complete: bool,
        deleted: Iterable[str],
        now: float,
    ) -> tuple[list[str], list[str], list[str], list[str]]:
        if source == "api" or not re.fullmatch("[a-z][a-z0-9_-]{0,31}", source):
            raise RefusedError(f"not a source with lists: {source}")
        if rows is None:
            if source not in self.lists:
                raise RefusedError(f"no list of {source}")
            (specs, complete), deleted = self.lists[source], []
        else:
            specs = [Spec(*row) for row in rows]
        ended = [address(url) for url in deleted]
        listed = [address(spec.url) for spec in specs]
        for spec in specs:
            thousandths(spec.weight)
        if len(set(listed)) < len(listed) or len(listed) > MAX_LISTED:
            raise RefusedError("a worker twice, or too many")
        if rows is not None:
            roles = {spec.url: self.role_of(spec.url) for spec in specs}
            for row in self.declared:
                for spec in specs:
                    same = row.address == address(spec.url)
                    if same and self.is_of_other_stage(row, source, roles[spec.url]):
                        raise RefusedError(f"{row.url} is {row.role[0]} elsewhere")
            self.list_roles[source] = roles

        self.lists[source] = specs, complete
        difference = Difference()
        known = list(self.declared)
        self.last_time = now
        for place, spec in enumerate(specs):
            self.declare(source, spec, difference)
            for row in self.declared:
                if source == "static" and row.address == address(spec.url):
                    row.place = place

        unlisted = [row for row in self.declared if source in row.owners and row.address not in listed]
        named = [row for row in unlisted if any(means(one, row) for one in ended)]
        absent = [row for row in unlisted if row not in named] if complete else []
        self.note_waits(source, now)
        if complete:
            self.let_absent_go(source, known, absent, now, difference, is_list=True)
        for row in named:
            self.let_go(source, row, difference)
        return difference.joined, difference.left, difference.changed, difference.held

    def listed_rows(self, source: str) -> list[Row]:
        listed = [address(spec.url) for spec in self.lists[source][0]]
        return [row for row in self.declared if source in row.owners and row.address in listed]

    def note_waits(self, source: str, now: float) -> None:
        """Whom a check awaits, and since which list."""
        before = self.waits.get(source, {})
        waiting = [row for row in self.listed_rows(source) if self.is_managed and self.awaits_check(row)]
        self.waits[source] = {row.id: before.get(row.id, now) for row in waiting}

    def let_absent_go(
        self,
        source: str,
        known: list[Row],
        absent: list[Row],
        now: float,
        difference: Difference,
        *,
        is_list: bool,
    ) -> None:
        guarded, replaces = self.guarded(source, known, absent, now, is_list)
        awaiting = self.awaiting_successors(source, [row for row in absent if row not in guarded], now)
        before = self.holds.pop(source, {})
        for row in absent:
            age = now - before[row.url].since if row.url in before else 0
            if row not in guarded and row not in awaiting:
                row.overdue = row.replaced and bool(self.waits[source]) and age >= self.hold_secs
                self.let_go(source, row, difference)
                continue
            hold = before.get(row.url) or Hold(now)
            hold.syncs += is_list
            self.holds.setdefault(source, {})[row.url] = hold
            row.held, row.replaced = True, replaces or row in awaiting
            if is_list:
                difference.held.append(row.url)

    @staticmethod
    def awaits_check(row: Row) -> bool:
        return row.state == "pending" and row.ready

    def awaiting_successors(self, source: str, absent: list[Row], now: float) -> list[Row]:
        """Make before break: those that stay until as many of the list have passed their check."""
        listed = self.listed_rows(source)
        waits = self.waits[source]
        waiting = [row for row in listed if row.id in waits and now - waits[row.id] < self.hold_secs]
        if source == "kubernetes" or not waiting:
            return []
        holds = self.holds.get(source, {})
        leaving = [
            row
            for row in absent
            if row.owners == [source]
            and self.is_eligible(row)
            and not (row.address.rank and any(row.address.host == other.address.host for other in listed))
            and (row.url not in holds or now - holds[row.url].since < self.hold_secs)
        ]
        named_groups = [row.role[2] for row in listed if not row.leaving]
        stay = [row for row in leaving if row.role[2] not in named_groups]

        def kind(row: Row) -> tuple[str, str, list[str]]:
            return row.role[0], row.role[2], sorted(self.models.get(row.address.host, []))

        def replaces(new: Row, old: Row) -> bool:
            (stage, group, models), (old_stage, old_group, old_models) = kind(new), kind(old)
            either_unknown = not models or not old_models
            return (stage, group) == (old_stage, old_group) and (
                either_unknown or bool(set(models) & set(old_models))
            )

        for one in leaving:
            alike = [row for row in leaving if kind(row) == kind(one) and row not in stay]
            if one not in alike:
                continue
            successors = [row for row in waiting if replaces(row, one)]
            hosts_left, rows_left = len({row.address.host for row in successors}), len(successors)
            for host in sorted({row.address.host for row in alike}, reverse=True):
                ranks = [row for row in alike if row.address.host == host]
                if hosts_left > 0 or rows_left >= len(ranks):
                    stay += ranks
                    hosts_left = max(0, hosts_left - 1)
                    rows_left = max(0, rows_left - len(ranks))
            # Those that leave are asked about again, as others: none is left to take their place then.
            leaving = [row for row in leaving if row not in alike]
        return stay

    def replaced(self) -> list[tuple[str, str]]:
        rows = [row for row in self.in_order() if row.replaced or row.overdue]
        return [(row.url, "held" if row.replaced else "overdue") for row in rows]

    @change
    def end_holds(self, now: float) -> None:
        self.last_time = now
        for source in sorted({row.owners[0] for row in self.declared if row.replaced}):
            held = [row for row in self.declared if row.held and source in row.owners]
            absent = [row for row in held if row not in self.listed_rows(source)]
            self.note_waits(source, now)
            if self.lists[source][1]:
                self.let_absent_go(source, self.declared[:], absent, now, Difference(), is_list=False)

    def declare(self, source: str, spec: Spec, difference: Difference) -> None:
        row = next((row for row in self.declared if row.address == address(spec.url)), None)
        role = self.role_when(source, spec.url)
        if row is None:
            if not spec.leaving:
                difference.joined.append(self.join(spec, source, role).url)
        elif self.is_of_other_stage(row, source, role):
            return
        elif not row.owners:
            if not spec.leaving:
                row.owners = [source]
                row.draining = row.leaving = row.kept_out = row.overdue = False
                self.apply(row, spec, role)
                difference.joined.append(row.url)
        else:
            row.owners = sorted({*row.owners, source}, key=self.owner_order)
            if source == row.owners[0]:
                self.take_word(row, spec, role, difference)

    @staticmethod
    def owner_order(source: str) -> tuple[int, str]:
        """Whose word counts for a worker that several sources declare, whichever came first."""
        known = [*BY_HAND, *FIRST_SOURCES]
        return (known.index(source), "") if source in known else (len(known), source)

    def take_word(self, row: Row, spec: Spec, role: Role, difference: Difference) -> None:
        if self.apply(row, spec, role):
            (difference.changed if row in self.declared else difference.left).append(row.url)

    def join(self, spec: Spec, owner: str, role: Role) -> Row:
        row = Row(
            spelled(spec.url),
            thousandths(spec.weight),
            [owner],
            ready=spec.ready,
            drain_secs=spec.drain_secs,
            incarnation=spec.incarnation,
            role=role,
        )
        self.declared.append(row)
        self.start(row)
        return row

    def start(self, row: Row) -> None:
        """As an unknown worker begins: checked first if anybody does that."""
        row.id = self.next_row_id
        self.next_row_id += 1
        row.state = "pending"
        if row.ready and not self.is_managed:
            self.serve(row)

    def serve(self, row: Row) -> None:
        others = [other for other in self.serving() if other.address.host == row.address.host]
        row.state = "serving"
        row.healthy = all(other.healthy for other in others)
        row.draining = False
        row.worker_id = self.next_worker_id
        self.next_worker_id += 1

    def apply(self, row: Row, spec: Spec, role: Role) -> bool:
        """What the first owner says now. True if it is something new."""
        row.held = row.replaced = False
        is_named_anew = row.incarnation and spec.incarnation and row.incarnation != spec.incarnation
        if is_named_anew or row.role != role:
            row.role = role
            if spec.leaving:
                self.declared.remove(row)
            else:
                self.restart(row, spec)
            return True
        before = (row.weight, row.ready, row.leaving)
        was_leaving = row.leaving
        row.weight = thousandths(spec.weight)
        row.ready = spec.ready
        row.leaving = spec.leaving
        row.drain_secs = spec.drain_secs
        row.incarnation = spec.incarnation or row.incarnation
        if spec.leaving and not was_leaving:
            if row.serves:
                row.draining = True
            else:
                row.state = "left"
        if was_leaving and not spec.leaving:
            row.draining = row.kept_out and row.serves
            if row.state == "left" and not row.kept_out:
                self.start(row)
        if row.state == "pending" and row.ready and not self.is_managed:
            self.serve(row)
        return before != (row.weight, row.ready, row.leaving)

    def restart(self, row: Row, spec: Spec) -> None:
        """An engine that started anew, where another one of the same owners and URL was."""
        row.state = "pending"
        row.weight = thousandths(spec.weight)
        row.ready = spec.ready
        row.leaving = False
        row.drain_secs = spec.drain_secs
        row.incarnation = spec.incarnation
        if row.kept_out:
            row.id = self.next_row_id
            self.next_row_id += 1
            row.state, row.draining = "left", False
        else:
            self.start(row)

    def guarded(
        self, source: str, known: list[Row], absent: list[Row], now: float, is_list: bool
    ) -> tuple[list[Row], bool]:
        """Those of the absent that the guard holds, and whether until one of the list serves.

        `known` before: who has just joined makes up for nobody.
        """
        own = [row for row in known if row in self.declared and row.owners and row.owners[0] == source]
        working = [row for row in own if row.serves and not row.draining]
        total = len(working)
        doubted = [row for row in absent if row in working and row.owners == [source]]
        # A list that replaces all workers: the old ones stay until one of the new ones serves.
        listed = self.listed_rows(source)
        replaces = (
            source in WRITTEN
            and self.is_managed
            and any(self.awaits_check(row) for row in listed)
            and not any(self.in_use(row) for row in listed)
        )
        if source in WRITTEN:
            too_many = len(doubted) == total and (not self.lists[source][0] or replaces)
        else:
            too_many = len(doubted) == total or len(doubted) > self.guard * total
        if not is_list and source not in WRITTEN:  # only another list ends these
            return [row for row in absent if not row.replaced], replaces
        if not too_many:
            return [], replaces
        before = self.holds.get(source, {})
        held = []
        for row in doubted:
            hold = before.get(row.url)
            is_believed = is_list and hold is not None and now - hold.since >= self.hold_secs
            if replaces or not is_believed:
                held.append(row)
        return held, replaces

    @staticmethod
    def in_use(row: Row) -> bool:
        return row.serves and not row.draining and not row.resting

    def let_go(self, source: str, row: Row, difference: Difference) -> None:
        """The source declares it no more. If others do, the first of them is the owner; else it leaves."""
        was_owner = row.owners[0] == source
        row.owners.remove(source)
        row.last_owner = source
        row.held = row.replaced = False
        if row.owners:
            if was_owner:
                self.take_next_word(row, difference)
            return
        difference.left.append(row.url)
        if row.serves and self.is_managed:
            row.draining = True
        else:
            self.declared.remove(row)

    def take_next_word(self, row: Row, difference: Difference) -> None:
        specs, _ = self.lists.get(row.owners[0], ([], True))
        for spec in specs:
            if address(spec.url) == row.address:
                self.take_word(row, spec, self.role_when(row.owners[0], spec.url), difference)

    @change
    def adopt(self, source: str) -> list[str]:
        if source not in self.lists:
            raise RefusedError(f"no list of {source}")
        self.holds.pop(source, None)
        held = [row for row in self.declared if row.held and row.owners[0] == source]
        difference = Difference()
        for row in held:
            self.let_go(source, row, difference)
        return difference.left

    # What a server does.

    @change
    def managed(self, on: bool) -> None:
        turned_off = self.is_managed and not on
        self.is_managed = on
        if turned_off:
            self.declared = [row for row in self.declared if row.owners]
            for row in self.in_order():
                if self.awaits_check(row):
                    self.serve(row)
            self.end_holds(self.last_time)

    @change
    def admit(self, ids: Iterable[int]) -> list[str]:
        ids = list(ids)
        admitted = [row for row in self.in_order() if row.state == "pending" and row.ready and row.id in ids]
        for row in admitted:
            self.serve(row)
        if admitted:
            self.end_holds(self.last_time)
        return [row.url for row in admitted]

    @change
    def drained(self, worker_ids: Iterable[int]) -> None:
        worker_ids = list(worker_ids)
        drains = [row for row in self.declared if row.serves and row.draining]
        for row in [row for row in drains if row.worker_id in worker_ids]:
            if any(owner not in BY_HAND for owner in row.owners):
                row.state = "left"
                row.draining = False
            else:
                self.declared.remove(row)

    # By hand.

    @change
    def add(self, url: str, weight: float = 1.0) -> None:
        if any(row.address == address(url) for row in self.declared):
            raise RefusedError(f"{url} is there already")
        row = self.join(Spec(url, weight), "api", self.role_of(url))
        if not row.serves:
            self.serve(row)

    def named(self, url: str) -> list[Row]:
        return [row for row in self.declared if means(address(url), row)]

    @change
    def remove(self, url: str) -> None:
        rows = self.named(url)
        if not rows or any(owner not in BY_HAND for row in rows for owner in row.owners):
            raise RefusedError(f"{url} is not there, or declared elsewhere")
        self.declared = [row for row in self.declared if row not in rows]

    @change
    def set_draining(self, url: str, draining: bool) -> None:
        if draining:
            rows = [row for row in self.named(url) if row.state != "left"]
        else:
            rows = [row for row in self.named(url) if row.owners and row.state in ("serving", "left")]
        if not rows:
            raise RefusedError(f"{url} is not in the fleet")
        for row in rows:
            row.kept_out = draining
            if row.serves:
                row.draining = draining
            elif not draining:
                self.start(row)
            else:  # it has not served yet
                row.id = self.next_row_id
                self.next_row_id += 1
                row.state = "left"

    @change
    def set_healthy(self, url: str, healthy: bool) -> None:
        if not any(row.serves for row in self.named(url)):
            raise RefusedError(f"{url} is not in the fleet")
        for row in self.serving():
            if row.address.host == address(url).host:
                row.healthy = healthy
                if row.held and not healthy:
                    self.give_up(row)

    def give_up(self, row: Row) -> None:
        """Its source does not name it, and it does not answer either."""
        source = row.owners.pop(0)
        row.held = row.replaced = False
        if source in self.holds:
            self.holds[source].pop(row.url, None)
        if row.owners:
            self.take_next_word(row, Difference())
        else:
            self.declared.remove(row)
