"""RequestQuarantine against its slow twin, in any order of losses, deaths, recoveries and arrivals."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models import request_quarantine as models
from vllm_router import _core_testing as testing

DIGESTS = st.integers(1, 5)
HOSTS = st.integers(1, 3)
CLIENTS = st.integers(0, 3)


class RequestQuarantine(RuleBasedStateMachine):
    @initialize(requests=st.integers(1, 5), clients=st.integers(1, 4), pending=st.booleans())
    def start(self, requests, clients, pending):
        self.real = testing.RequestQuarantine(requests, clients, pending)
        self.slow = models.RequestQuarantine(requests, clients, pending)
        self.now = 1000.0

    @rule(seconds=st.sampled_from([0.5, 1.0, 9.5, 10.0, 59.0, 60.0, 300.0, 599.5, 600.0]))
    def wait(self, seconds):
        self.now += seconds

    @rule(digest=DIGESTS, host=HOSTS, client=CLIENTS, age=st.sampled_from([0.0, 0.5, 3.0]))
    def lose(self, digest, host, client, age):
        self.now += 0.25
        for one in (self.real, self.slow):
            one.report_loss(digest, 100 * digest, host, client, f"{digest}", self.now, self.now - age)

    @rule(host=HOSTS)
    def die(self, host):
        got = self.real.report_down(host, self.now)
        # Requests that are lost on one host in one instant have no order.
        assert sorted(got) == sorted(self.slow.report_down(host, self.now))

    @rule(digest=DIGESTS, hosts=st.permutations([1, 2, 3]), client=CLIENTS, beside=st.integers(0, 4))
    def poison(self, digest, hosts, client, beside):
        """It ends two hosts, beside the requests of others, so that clients are often near a restriction."""
        self.now += 10.0
        for host in hosts[:2]:
            for number in range(beside):
                self.lose(1 + number, host, number % 3, 3.0)
            self.lose(digest, host, client, 0.0)
            self.die(host)

    @rule(host=HOSTS, ago=st.sampled_from([0.0, 0.25, 0.75, 5.0]))
    def recover(self, host, ago):
        self.real.report_up(host, self.now - ago, self.now)
        self.slow.report_up(host, self.now - ago, self.now)

    @rule(digest=DIGESTS, host=HOSTS, times=st.integers(1, 3))
    def serve(self, digest, host, times):
        for _ in range(times):
            if not self.real.may_forget(100 * digest):  # nobody would tell
                known = self.slow.requests.get(digest)
                assert known is None or known.expired(self.now)
                return
            lifted = self.real.report_success(digest, host, self.now)
            assert lifted == self.slow.report_success(digest, host, self.now)

    @rule(client=CLIENTS)
    def enter(self, client):
        assert self.real.enter(client, self.now) == self.slow.enter(client, self.now)

    @rule(client=CLIENTS)
    def leave(self, client):
        self.real.leave(client)
        self.slow.leave(client)

    @invariant()
    def the_same_are_suspected(self):
        if not hasattr(self, "real"):
            return
        for digest in range(1, 6):
            suspected = self.slow.is_suspected(digest, self.now)
            assert self.real.is_suspected(digest, self.now) == suspected
            if suspected:  # the way to this question is open
                assert self.real.may_know(100 * digest)
                assert self.real.active
        assert self.real.counts(self.now) == self.slow.counts(self.now)


TestRequestQuarantine = RequestQuarantine.TestCase
