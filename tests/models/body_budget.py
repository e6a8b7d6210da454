"""Memory for bodies that grow, all sums made anew each time; the twin of cpp/routing/body_budget.h."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Body:  # compared by identity
    need: int = 0
    held: int = 0
    wanted: int = 0
    state: str = "outside"  # growing, complete


class BodyBudget:
    def __init__(self, total: int) -> None:
        self.total = total
        self.bodies: list[Body] = []  # that hold something
        self.privileged: Body | None = None
        self.growers: list[Body] = []  # that wait
        self.newcomers: list[Body] = []
        self.granted: list[Body] = []

    @property
    def in_use(self) -> int:
        return sum(body.held for body in self.bodies)

    @property
    def waiting(self) -> int:
        return len(self.growers) + len(self.newcomers)

    def grow(self, body: Body, to: int, need: int) -> str:
        if need > self.total:
            return "never"
        body.wanted, body.need = to, need
        if body is self.privileged:
            overtakes = False
        elif body.state == "growing":
            overtakes = bool(self.growers)
        else:
            overtakes = bool(self.growers or self.newcomers)
        if not overtakes and self._grantable(body):
            self._grant(body)
            return "held"
        if body.state == "complete":
            return "never"
        (self.growers if body.state == "growing" else self.newcomers).append(body)
        return "waiting"

    def try_keep(self, body: Body, count: int) -> bool:
        if self.waiting or self.in_use >= self.total // 2 or self.in_use + count > self.total:
            return False
        body.state, body.held = "complete", count
        self.bodies.append(body)
        return True

    def grow_now(self, body: Body, to: int) -> bool:
        if self.waiting or self.in_use + to - body.held > self.total:
            return False
        if body.state == "outside":
            self.bodies.append(body)
        body.state, body.held = "complete", to
        return True

    def complete(self, body: Body, count: int) -> None:
        if body.state == "outside":
            return
        body.state, body.held = "complete", count
        self._ended(body)

    def release(self, body: Body) -> None:
        if body.state == "outside":
            return
        self.bodies.remove(body)
        body.state, body.held = "outside", 0
        self._ended(body)

    def leave(self, body: Body) -> bool:
        for queue in (self.growers, self.newcomers):
            if body in queue:
                queue.remove(body)
                self._pass()
                return True
        return False

    def must_come_to_an_end(self) -> None:
        """However much each body has come to hold, there is an order in which all get what they need."""
        growing = [body for body in self.bodies if body.state == "growing"]
        for body in growing:
            others = sum(o.held for o in growing if o is not body and o is not self.privileged)
            assert others + body.need <= self.total

    def _ended(self, body: Body) -> None:
        if self.privileged is body:
            self.privileged = None
        self._pass()

    def _grantable(self, body: Body) -> bool:
        more = body.wanted - body.held
        if self.in_use + more > self.total:
            return False
        growing = [one for one in self.bodies if one.state == "growing"]
        if body is self.privileged:
            return True
        if self.privileged is None:
            return sum(one.held for one in growing if one is not body) + body.need <= self.total
        rounded = [1 << (one.need - 1).bit_length() for one in [*growing, body]]
        largest = min(self.total, max(rounded))
        others = sum(one.held for one in growing if one is not self.privileged and one is not body)
        return others + body.wanted + largest <= self.total

    def _grant(self, body: Body) -> None:
        if body.state == "outside":
            self.bodies.append(body)
        body.state = "growing"
        self.privileged = self.privileged or body
        body.held = body.wanted

    def _pass(self) -> None:
        while self.waiting:
            first = (self.growers or self.newcomers)[0]
            if self.privileged in self.growers and self._grantable(self.privileged):
                first = self.privileged
            if not self._grantable(first):
                return
            (self.growers if first in self.growers else self.newcomers).remove(first)
            self._grant(first)
            self.granted.append(first)
