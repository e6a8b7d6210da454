"""WorkerRegistry and its FleetViews against the slow twin: any order of joining, leaving and failing."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.models.fleet import Fleet
from vllm_router import _core_testing as testing

# Few hosts and ranks, so that changes meet.
URLS = st.builds(
    lambda host, rank: f"http://{host}:8000{rank}",
    st.sampled_from("abc"),
    st.sampled_from(["", "@0", "@1", "@2"]),
)


class WorkerRegistry(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.registry = testing.Registry()
        self.fleet = Fleet()

    def agree(self, slow, change, *arguments):
        """The twin says whether there is anything to change; the registry raises when there is not."""
        try:
            change(*arguments)
            done = True
        except ValueError:
            done = False
        assert done == slow

    @rule(url=URLS, weight=st.sampled_from([1000, 10, 2500]))
    def add(self, url, weight):
        self.agree(self.fleet.add(url, weight), self.registry.add, url, weight / 1000)

    @rule(url=URLS)
    def remove(self, url):
        self.agree(self.fleet.remove(url), self.registry.remove, url)

    @rule(url=URLS, healthy=st.booleans())
    def set_healthy(self, url, healthy):
        self.agree(self.fleet.set_healthy(url, healthy), self.registry.set_healthy, url, healthy)

    @rule(url=URLS, draining=st.booleans())
    def set_draining(self, url, draining):
        self.agree(self.fleet.set_draining(url, draining), self.registry.set_draining, url, draining)

    @rule(tried=st.sets(st.integers(0, 11)))
    def retry(self, tried):
        tried = {position for position in tried if position < len(self.fleet.members)}
        assert self.registry.view.without(list(tried)).eligible == self.fleet.eligible(tried)

    @invariant()
    def the_view_is_the_twins_fleet(self):
        view, eligible = self.registry.view, self.fleet.eligible()
        assert [member[:5] for member in self.registry.members()] == [
            (w.url, w.id, w.weight, w.healthy, w.draining) for w in self.fleet.members
        ]
        assert view.eligible == eligible
        assert view.membership == self.fleet.membership
        weights = [self.fleet.members[i].weight for i in eligible]
        assert view.eligible_weight == sum(weights)
        assert view.equal_weights == (len(set(weights)) <= 1)
        assert view.plan is None or view.plan[1] == view.membership


TestWorkerRegistry = WorkerRegistry.TestCase
