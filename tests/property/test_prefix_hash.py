"""prefix_hash against its slow twin, and the bound that it promises, through any story."""

from hypothesis import event, given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.policies import LeastLoad, PrefixHash
from vllm_router import _core_testing as testing

NUMBERS = st.integers(1, 7)
PROMPTS = (
    st.none()
    | st.text(alphabet="aé€🎲", max_size=12).map(str.encode)
    | st.lists(st.integers(0, 2), min_size=1, max_size=9)
)
STEPS = st.one_of(
    st.tuples(st.just("add"), NUMBERS, st.sampled_from([1000, 1000, 2500, 10, 100_000])),
    st.tuples(st.sampled_from(["remove", "failing", "healthy", "drain"]), NUMBERS, st.just(0)),
    st.tuples(st.just("load"), NUMBERS, st.integers(0, 9) | st.integers(0, 10**6)),
    st.tuples(st.just("ask"), PROMPTS, st.integers(0, 3)),
    st.tuples(st.just("ask"), PROMPTS, st.just(0)),
)
OPTIONS = st.fixed_dictionaries(
    {"virtual_nodes": st.sampled_from([1, 3, 10]), "prefix_token_count": st.integers(1, 5)},
    optional={
        "prefix_hash_load_factor": st.sampled_from([1000, 1250, 10_000]),
        "prefix_hash_balance_abs_threshold": st.integers(0, 12),
    },
)


@given(st.lists(NUMBERS, min_size=1, max_size=6, unique=True), st.lists(STEPS, max_size=40), OPTIONS)
def test_it_decides_as_its_slow_twin_and_never_takes_the_overloaded(first, story, options):
    policy = testing.PolicyHarness("prefix_hash", seed=5, **options)
    slow = PrefixHash(LeastLoad(5), 5, **options)
    fleet = Fleet()
    for kind, which, value in [*(("add", number, 1000) for number in first), *story]:
        url = f"http://w{which}:8000"
        there = any(worker.url == url for worker in fleet.members)
        if kind == "add" and fleet.add(url, value):
            policy.add(url, value / 1000)
        elif kind == "ask":
            tried = [i for i in range(len(fleet.members)) if value >> i & 1]
            eligible = fleet.eligible(tried)
            answer = policy.choose_prompt(which, tried=tried)
            assert answer == slow.choose(which, fleet, tried)
            if answer and which:
                event(answer[1])
                assert not slow.is_overloaded(fleet, eligible, answer[0])
                if not any(fleet.members[i].requests for i in eligible):
                    assert answer[1] == "prefix_hash"
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
