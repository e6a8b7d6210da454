"""BodyBudget against its slow twin, in any order of growing and giving back; and all come to an end."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.models import body_budget as models
from vllm_router import _core_testing as testing


class BodyBudget(RuleBasedStateMachine):
    @initialize(total=st.integers(4, 24))
    def start(self, total):
        self.real = testing.BodyBudget(total)
        self.slow = models.BodyBudget(total)
        self.bodies = []  # by number

    def idle(self, *states):
        waiting = [*self.slow.growers, *self.slow.newcomers]
        return [body for body in self.bodies if body.state in states and body not in waiting]

    def number(self, body):
        return self.bodies.index(body)

    def claim(self, body, to, need):
        entry = self.real.grow(self.number(body), to, need)
        assert entry == self.slow.grow(body, to, need)

    @rule(need=st.integers(1, 25), share=st.integers(1, 8))
    def come(self, need, share):
        assert self.real.add() == len(self.bodies)
        self.bodies.append(models.Body())
        self.claim(self.bodies[-1], -(-need * share // 8), need)

    @rule(count=st.integers(1, 9))
    def keep(self, count):
        assert self.real.add() == len(self.bodies)
        self.bodies.append(models.Body())
        assert self.real.try_keep(self.number(self.bodies[-1]), count) == self.slow.try_keep(
            self.bodies[-1], count
        )

    @precondition(lambda self: [body for body in self.idle("growing") if body.held < body.need])
    @rule(data=st.data())
    def grow(self, data):
        body = data.draw(st.sampled_from([body for body in self.idle("growing") if body.held < body.need]))
        self.claim(body, min(body.need, 2 * body.held), body.need)

    @precondition(lambda self: self.idle("growing"))
    @rule(data=st.data())
    def complete(self, data):
        body = data.draw(st.sampled_from(self.idle("growing")))
        count = data.draw(st.integers(1, body.held))
        self.real.complete(self.number(body), count)
        self.slow.complete(body, count)

    @precondition(lambda self: self.idle("complete"))
    @rule(data=st.data(), more=st.integers(1, 9), need=st.integers(0, 9))
    def grow_again(self, data, more, need):
        """A body that was read as far as it seemed to be needed, and then further."""
        body = data.draw(st.sampled_from(self.idle("complete")))
        self.claim(body, body.held + more, body.held + more + need)

    @rule(count=st.integers(1, 9))
    def come_now(self, count):
        assert self.real.add() == len(self.bodies)
        self.bodies.append(models.Body())
        self.grow_now(self.bodies[-1], count)

    @precondition(lambda self: self.idle("complete"))
    @rule(data=st.data(), more=st.integers(1, 9))
    def grow_on_now(self, data, more):
        body = data.draw(st.sampled_from(self.idle("complete")))
        self.grow_now(body, body.held + more)

    def grow_now(self, body, to):
        assert self.real.grow_now(self.number(body), to) == self.slow.grow_now(body, to)

    @precondition(lambda self: self.idle("growing", "complete"))
    @rule(data=st.data())
    def release(self, data):
        body = data.draw(st.sampled_from(self.idle("growing", "complete")))
        self.real.release(self.number(body))
        self.slow.release(body)

    @precondition(lambda self: self.bodies)
    @rule(data=st.data())
    def leave(self, data):
        body = data.draw(st.sampled_from(self.bodies))
        assert self.real.leave(self.number(body)) == self.slow.leave(body)

    @invariant()
    def the_same_are_granted_and_the_same_is_left(self):
        if not hasattr(self, "real"):
            return
        assert self.real.take_granted() == [self.number(body) for body in self.slow.granted]
        self.slow.granted.clear()
        assert (self.real.in_use, self.real.waiting) == (self.slow.in_use, self.slow.waiting)
        assert self.slow.in_use <= self.slow.total
        self.slow.must_come_to_an_end()

    def teardown(self):
        """From wherever it is, bodies that grow as far as they need, and then leave, all get there."""
        if not hasattr(self, "real"):
            return
        for _ in range(30 * len(self.bodies) + 30):
            busy = self.idle("growing", "complete")
            if not busy:
                break
            body = next((one for one in busy if one.state == "complete"), busy[0])
            if body.state == "complete":
                self.real.release(self.number(body))
                self.slow.release(body)
            elif body.held == body.need:
                self.real.complete(self.number(body), body.held)
                self.slow.complete(body, body.held)
            else:
                self.claim(body, min(body.need, 2 * body.held), body.need)
            self.the_same_are_granted_and_the_same_is_left()
        assert (self.real.in_use, self.real.waiting) == (0, 0)


TestBodyBudget = BodyBudget.TestCase
