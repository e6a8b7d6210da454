"""The slow twin of cpp/routing/request_quarantine.h: plain dictionaries, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

PENDING, MEMORY, QUARANTINE, RESTRICTION = 10.0, 600.0, 60.0, 600.0
PROOFS, OFFENCES, MAX_OFFENCES, DEATHS = 3, 2, 8, 4
GUILTY_SHARE, ENOUGH = 0.5, 1000.0


@dataclass
class Pending:
    client: int  # 0: several
    since: float
    count: int = 1


@dataclass
class Request:
    size: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)  # by host
    died: bool = False
    completed: bool = False
    death_client: int = 0
    death_count: int = 0
    first_host: int = -1
    deaths: list[int] = field(default_factory=list)  # the first one, and the last one
    request_id: str = ""
    last: float = 0.0
    until: float | None = None
    offender: int = 0
    served: dict[int, list[float]] = field(default_factory=dict)  # host -> count, time of its innocent loss

    def live(self, now: float) -> int:
        """Losses and deaths that still count."""
        died = self.died and now - self.last < MEMORY
        return died + sum(now - one.since < PENDING for one in self.pending.values())

    def suspected(self, now: float, suspect_pending: bool) -> bool:
        return now < self.until if self.until is not None else suspect_pending and self.live(now) >= 2

    def expired(self, now: float) -> bool:
        return now >= self.until if self.until is not None else self.live(now) == 0


@dataclass
class Losses:
    """What was lost with a host whose fate is not known."""

    last: float
    count: int = 0
    clients: dict[int, int] = field(default_factory=dict)
    youngest: tuple[float, int] = (-1.0, 0)  # when it was sent, its client


@dataclass
class Death:
    number: int
    since: float


@dataclass
class Offence:
    digest: int
    death: int
    losses: int


@dataclass
class Client:
    since: float
    last: float
    first_death: int
    last_death: int = 0
    deaths: int = 0
    losses: int = 0
    evidence: float = 1.0
    offences: list[Offence] = field(default_factory=list)
    penalties: int = 0
    until: float = 0.0
    rejected_until: float = 0.0
    one_at_a_time: bool = False
    inside: int = 0

    def count_offences(self) -> int:
        return len({offence.death for offence in self.offences})

    def others(self) -> int:
        offending = sum(offence.losses for offence in self.offences)
        return self.losses - min(offending, self.deaths, self.losses)

    def penalty(self) -> float:
        self.penalties += 1
        return min(QUARANTINE * 2 ** (self.penalties - 1), RESTRICTION - QUARANTINE)


class RequestQuarantine:
    def __init__(self, max_requests: int, max_clients: int, suspect_pending: bool = True) -> None:
        self.suspect_pending = suspect_pending
        self.max_requests, self.max_clients = max_requests, max_clients
        self.requests: dict[int, Request] = {}  # oldest first, by the time of the last loss or death
        self.clients: dict[int, Client] = {}  # oldest first, by the time of the last death
        self.at_host: dict[int, Losses] = {}
        self.dead: dict[int, Death] = {}  # by host
        self.last_death = 0
        self.forget_at = 0.0
        self.quarantines = self.losses = self.lifted = 0

    def report_loss(
        self, digest: int, size: int, host: int, client: int, request_id: str, now: float, sent: float
    ) -> None:
        self.losses += 1
        self._expire(now)
        self._count_loss(host, client, now, sent)
        request = self.requests.pop(digest, None)
        if request is None or request.expired(now):
            if len(self.requests) >= self.max_requests:
                self.requests.pop(next(iter(self.requests)))
            request = Request()
        self.requests[digest] = request
        request.last = now
        if request.until is not None:
            return
        death = self.dead.get(host)
        if request.died and death and now - death.since < PENDING and death.number in request.deaths:
            if death.number == request.deaths[0]:
                request.death_count += 1
                if client != request.death_client:
                    request.death_client = 0
            return
        if host in request.served:
            count, excused_at = request.served[host]
            again = now - excused_at < PENDING
            request.served[host] = [0, now if count >= PROOFS and not again else excused_at]
            if again or count >= PROOFS:
                return
        known = self.clients.get(client)
        if known is not None and now < known.until:
            known.rejected_until = max(known.rejected_until, now + PENDING)
        request.size, request.request_id = size, request_id
        before = request.pending.get(host)
        if before is None or now - before.since >= PENDING:
            request.pending[host] = Pending(client, now)
        else:
            same = before.client == client
            request.pending[host] = Pending(client if same else 0, now, before.count + 1)

    def _count_loss(self, host: int, client: int, now: float, sent: float) -> None:
        if now >= self.forget_at:
            self.forget_at = now + PENDING
            for old in list(self.at_host):
                self._drop_if_old(old, now)
            self.dead = {old: one for old, one in self.dead.items() if now - one.since < PENDING}
        self._drop_if_old(host, now)
        losses = self.at_host.setdefault(host, Losses(now))
        losses.last = now
        losses.count += 1
        if client != 0 and (client in losses.clients or len(losses.clients) < self.max_clients):
            losses.clients[client] = losses.clients.get(client, 0) + 1
        if sent > losses.youngest[0]:
            losses.youngest = (sent, client)

    def _drop_if_old(self, host: int, now: float) -> bool:
        if host not in self.at_host or now - self.at_host[host].last < PENDING:
            return False
        del self.at_host[host]
        for digest, request in list(self.requests.items()):
            if request.pending.pop(host, None) and request.expired(now):
                del self.requests[digest]
        return True

    def report_down(self, host: int, now: float) -> list[tuple[str, float]]:
        if self._drop_if_old(host, now) or host not in self.at_host:
            return []
        lost = self.at_host.pop(host)
        lost_here = {
            digest: request.pending.pop(host)
            for digest, request in self.requests.items()
            if host in request.pending
        }
        death = self.dead.get(host)
        if death is None or now - death.since >= PENDING:
            self.last_death += 1
            death = self.dead[host] = Death(self.last_death, now)
        self._count_death(death.number, lost, now)
        quarantined = []
        for digest in sorted(lost_here, key=lambda one: lost_here[one].since):
            loss, request = lost_here[digest], self.requests[digest]
            if now - loss.since >= PENDING:
                if request.expired(now):
                    del self.requests[digest]
                continue
            second = request.died and now - request.last < MEMORY
            request.last = now
            self.requests[digest] = self.requests.pop(digest)
            if not second:
                request.died, request.death_client, request.death_count = True, loss.client, loss.count
                request.first_host, request.deaths = host, [death.number]
                continue
            request.deaths = [request.deaths[0], death.number]
            request.until = now + QUARANTINE
            request.pending.clear()
            request.offender = 0
            self.quarantines += 1
            if request.death_client == loss.client != 0 and not request.completed:
                self._offend(request, digest, loss)
            quarantined.append(request)
        return [(request.request_id, self._judge(request.offender, now)) for request in quarantined]

    def _count_death(self, death: int, lost: Losses, now: float) -> None:
        for number, count in sorted(lost.clients.items()):
            client = self.clients.pop(number, None)
            if client is None:
                client = Client(now, now, death)
            self.clients[number] = client
            client.last = now
            if len(self.clients) > self.max_clients:
                self.clients.pop(next(iter(self.clients)))
            if now - client.since >= MEMORY and now >= client.until:
                client.since, client.first_death = now, death
                client.deaths, client.losses, client.evidence, client.offences = 0, 0, 1.0, []
            client.losses += count
            if client.last_death == death:
                continue
            client.last_death = death
            client.deaths += 1
            chance = count / lost.count
            is_youngest = number == lost.youngest[1]
            if chance < GUILTY_SHARE:
                likely, other = GUILTY_SHARE / chance, (1 - GUILTY_SHARE) / (1 - chance)
                client.evidence *= likely if is_youngest else other
            if now < client.until:
                is_likely = chance >= GUILTY_SHARE or is_youngest
                penalty = client.penalty() if is_likely else QUARANTINE
                client.rejected_until = max(client.rejected_until, now + penalty)
                if is_likely:
                    client.until = max(client.until, now + RESTRICTION)
        for client in self.clients.values():
            if now < client.until and client.evidence < ENOUGH and self._was_elsewhere(client):
                client.until = client.rejected_until = 0.0

    def _was_elsewhere(self, client: Client) -> bool:
        return 4 * client.deaths < 3 * (self.last_death - client.first_death + 1)

    def _offend(self, request: Request, digest: int, loss: Pending) -> None:
        client = self.clients.get(loss.client)
        if client is None:
            return
        request.offender = loss.client
        client.offences = client.offences[-MAX_OFFENCES + 1 :]
        client.offences.append(Offence(digest, request.deaths[1], request.death_count + loss.count))

    def _judge(self, number: int, now: float) -> float:
        client = self.clients.get(number)
        if client is None:
            return 0.0
        if client.count_offences() >= OFFENCES:
            there = client.deaths >= DEATHS and not self._was_elsewhere(client)
            alone = there and client.others() == 0 and client.evidence >= 1
            client.one_at_a_time = client.evidence >= ENOUGH or alone
            restricted = client.one_at_a_time or (there and client.others() <= client.deaths)
            if restricted and now >= client.until:
                client.until = now + client.penalty()
        return max(0.0, client.until - now)

    def report_success(self, digest: int, host: int, now: float) -> str:
        self._expire(now)
        if digest not in self.requests:
            return ""
        request = self.requests[digest]
        if request.expired(now):
            del self.requests[digest]
            return ""
        request.completed = True
        count, excused_at = request.served.get(host, [0, -PENDING])
        request.served[host] = [count + 1, excused_at]
        request.pending.pop(host, None)
        if count + 1 >= PROOFS and request.first_host == host:
            request.died = False
        lifted = ""
        if request.until is not None:
            self.lifted += 1
            request.until = None
            lifted = "restriction" if self._retract(request, digest, now) else "quarantine"
        if request.expired(now):
            del self.requests[digest]
        return lifted

    def _retract(self, request: Request, digest: int, now: float) -> bool:
        client = self.clients.get(request.offender)
        if client is None:
            return False
        client.offences = [one for one in client.offences if one.digest != digest]
        if now >= client.until or client.count_offences() >= OFFENCES:
            return False
        client.until = client.rejected_until = 0.0
        return True

    def report_up(self, host: int, since: float, now: float) -> None:
        if host in self.at_host and self.at_host[host].last < since:
            del self.at_host[host]
        for digest, request in list(self.requests.items()):
            if host in request.pending and request.pending[host].since < since:
                del request.pending[host]
                if request.expired(now):
                    del self.requests[digest]

    def is_suspected(self, digest: int, now: float) -> bool:
        self._expire(now)
        return digest in self.requests and self.requests[digest].suspected(now, self.suspect_pending)

    def enter(self, client: int, now: float) -> str:
        self._expire(now)
        known = self.clients.get(client)
        if known is None or now >= known.until:
            return "free"
        if now < known.rejected_until or (known.one_at_a_time and known.inside):
            return "busy"
        known.inside += 1
        return "entered"

    def leave(self, client: int) -> None:
        if client in self.clients and self.clients[client].inside:
            self.clients[client].inside -= 1

    def counts(self, now: float) -> tuple[int, int, int, int, int]:
        self._expire(now)
        quarantined = sum(one.until is not None and now < one.until for one in self.requests.values())
        restricted = sum(now < one.until for one in self.clients.values())
        return quarantined, restricted, self.quarantines, self.losses, self.lifted

    def _expire(self, now: float) -> None:
        for oldest in list(self.requests):
            if not self.requests[oldest].expired(now):
                break
            del self.requests[oldest]
        for oldest in list(self.clients):
            client = self.clients[oldest]
            if now - client.last < MEMORY or now < client.until:
                break
            del self.clients[oldest]
