"""prefix_aware against its slow twin, and the bound that it promises, through any story."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.policies import LeastLoad, PrefixAware
from vllm_router import _core_testing as testing

NUMBERS = st.integers(1, 7)
DIGESTS = (
    st.none() | st.binary(min_size=32, max_size=32) | st.integers(0, 9).map(lambda i: bytes([i * 28]) * 32)
)
STEPS = st.one_of(
    st.tuples(st.just("add"), NUMBERS, st.sampled_from([1000, 1000, 2500, 10, 100_000])),
    st.tuples(st.sampled_from(["remove", "failing", "healthy", "drain"]), NUMBERS, st.just(0)),
    st.tuples(st.just("load"), NUMBERS, st.integers(0, 9) | st.integers(0, 10**6)),
    st.tuples(st.just("ask"), DIGESTS, st.integers(0, 3)),
    st.tuples(st.just("ask"), DIGESTS, st.just(0)),
)
OPTIONS = st.fixed_dictionaries(
    {"virtual_nodes": st.sampled_from([1, 3, 10])},
    optional={
        "load_factor_epsilon": st.sampled_from([10, 100, 250, 10_000]),
        "prefix_load_floor": st.integers(0, 9),
    },
)


@given(st.lists(NUMBERS, min_size=1, max_size=6, unique=True), st.lists(STEPS, max_size=40), OPTIONS)
def test_it_decides_as_its_slow_twin_and_keeps_the_bound(first, story, options):
    policy = testing.PolicyHarness("prefix_aware", seed=5, **options)
    slow = PrefixAware(LeastLoad(5), **options)
    fleet = Fleet()
    for kind, which, value in [*(("add", number, 1000) for number in first), *story]:
        url = f"http://w{which}:8000"
        there = any(worker.url == url for worker in fleet.members)
        if kind == "add" and fleet.add(url, value):
            policy.add(url, value / 1000)
        elif kind == "ask":
            tried = [i for i in range(len(fleet.members)) if value >> i & 1]
            eligible = fleet.eligible(tried)
            answer = policy.choose(digest=which, tried=tried)
            assert answer == slow.choose(which, fleet, tried)
            if answer and which:
                assert answer[0] in eligible
                assert slow.has_room(fleet, eligible, answer[0])
        elif there and kind == "remove":
            fleet.remove(url)
            policy.remove(url)
        elif there and kind in ("failing", "healthy"):
            fleet.set_healthy(url, kind == "healthy")
            policy.set_healthy(url, kind == "healthy")
        elif there and kind == "drain":
            fleet.set_draining(url, True)
            policy.set_draining(url, True)
        elif there and kind == "load":
            next(worker for worker in fleet.members if worker.url == url).requests = value
            policy.set_load(url, value)
