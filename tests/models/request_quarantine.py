"""The slow twin of cpp/routing/request_quarantine.h: plain dictionaries, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

PENDING, MEMORY, QUARANTINE, RESTRICTION = 10.0, 600.0, 60.0, 600.0
PROOFS = 3


@dataclass
class Request:
    size: int = 0
    pending: dict[int, tuple[int, float]] = field(default_factory=dict)  # host -> client (0: several), since
    died: bool = False
    death_client: int = 0
    death_host: int = -1
    death_at: float = 0.0
    request_id: str = ""
    last: float = 0.0
    until: float | None = None
    served: dict[int, list[float]] = field(default_factory=dict)  # host -> count, time of its innocent loss

    def live(self, now: float) -> int:
        """Losses and deaths that still count."""
        died = self.died and now - self.last < MEMORY
        return died + sum(now - since < PENDING for _, since in self.pending.values())

    def suspected(self, now: float, suspect_pending: bool) -> bool:
        return now < self.until if self.until is not None else suspect_pending and self.live(now) >= 2

    def expired(self, now: float) -> bool:
        return now >= self.until if self.until is not None else self.live(now) == 0


@dataclass
class Client:
    last: float
    until: float = 0.0
    rejected_until: float = 0.0
    busy: bool = False


class RequestQuarantine:
    def __init__(self, max_requests: int, max_clients: int, suspect_pending: bool = True) -> None:
        self.suspect_pending = suspect_pending
        self.max_requests, self.max_clients = max_requests, max_clients
        self.requests: dict[int, Request] = {}  # oldest first, by the time of the last loss or death
        self.clients: dict[int, Client] = {}  # oldest first, by the time of the last quarantine
        self.quarantines = self.losses = self.lifted = 0

    def report_loss(
        self, digest: int, size: int, host: int, client: int, request_id: str, now: float
    ) -> None:
        self.losses += 1
        self._expire(now)
        request = self.requests.pop(digest, None)
        if request is None or request.expired(now):
            if len(self.requests) >= self.max_requests:
                self.requests.pop(next(iter(self.requests)))
            request = Request()
        self.requests[digest] = request
        request.last = now
        if request.until is not None:
            return
        if request.died and host == request.death_host and now - request.death_at < PENDING:
            if client != request.death_client:
                request.death_client = 0
            return
        if host in request.served:
            count, excused_at = request.served[host]
            again = now - excused_at < PENDING
            request.served[host] = [0, now if count >= PROOFS and not again else excused_at]
            if again or count >= PROOFS:
                return
        self._reject_if_restricted(client, now + PENDING, now)
        request.size, request.request_id = size, request_id
        before = request.pending.get(host)
        several = before is not None and before[0] != client
        request.pending[host] = (0 if several else client, now)

    def report_down(self, host: int, now: float) -> list[tuple[str, bool]]:
        quarantined = []
        lost_here = {
            digest: request.pending[host][1]
            for digest, request in self.requests.items()
            if host in request.pending
        }
        for digest in sorted(lost_here, key=lost_here.__getitem__):
            request = self.requests[digest]
            client, since = request.pending.pop(host)
            if now - since >= PENDING:
                if request.expired(now):
                    del self.requests[digest]
                continue
            self._reject_if_restricted(client, now + QUARANTINE, now)
            second = request.died and now - request.last < MEMORY
            request.last = now
            self.requests[digest] = self.requests.pop(digest)
            if not second:
                request.died, request.death_client = True, client
                request.death_host, request.death_at = host, now
                continue
            request.until = now + QUARANTINE
            request.pending.clear()
            self.quarantines += 1
            to_blame = client if client == request.death_client else 0
            quarantined.append((request.request_id, to_blame != 0 and self._offend(to_blame, now)))
        return quarantined

    def report_success(self, digest: int, host: int, now: float) -> bool:
        self._expire(now)
        if digest not in self.requests:
            return False
        request = self.requests[digest]
        if request.expired(now):
            del self.requests[digest]
            return False
        count, excused_at = request.served.get(host, [0, -PENDING])
        request.served[host] = [count + 1, excused_at]
        request.pending.pop(host, None)
        if count + 1 >= PROOFS and request.death_host == host:
            request.died = False
        lifted = request.until is not None
        if lifted:
            self.lifted += 1
            request.until = None
        if request.expired(now):
            del self.requests[digest]
        return lifted

    def report_up(self, host: int, since: float, now: float) -> None:
        for digest, request in list(self.requests.items()):
            if host in request.pending and request.pending[host][1] < since:
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
        if known.busy or now < known.rejected_until:
            return "busy"
        known.busy = True
        return "entered"

    def leave(self, client: int) -> None:
        if client in self.clients:
            self.clients[client].busy = False

    def counts(self, now: float) -> tuple[int, int, int, int, int]:
        self._expire(now)
        quarantined = sum(one.until is not None and now < one.until for one in self.requests.values())
        restricted = sum(now < one.until for one in self.clients.values())
        return quarantined, restricted, self.quarantines, self.losses, self.lifted

    def _reject_if_restricted(self, client: int, until: float, now: float) -> None:
        known = self.clients.get(client)
        if known is not None and now < known.until:
            known.rejected_until = max(known.rejected_until, until)

    def _offend(self, client: int, now: float) -> bool:
        known = self.clients.pop(client, None)
        if known is None:
            known = Client(now)
        elif now - known.last < MEMORY:
            known.until = now + RESTRICTION
        known.last = now
        self.clients[client] = known
        if len(self.clients) > self.max_clients:
            self.clients.pop(next(iter(self.clients)))
        return now < known.until

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
