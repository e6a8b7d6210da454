"""Every policy against its slow twin, throw for throw, and the invariants that all of them keep.

A story changes fleet and loads in any order and asks in between; the twin, given the same dice, must answer
alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.policies import ConsistentHash, KeyedPolicy, RendezvousHash, cap, load_order, make_policy
from vllm_router import _core_testing as testing

REASONS = {
    "random": {"random"},
    "round_robin": {"round_robin"},
    "least_load": {"least_loaded"},
    "power_of_two": {"power_of_two"},
    "consistent_hash": {"session_hash", "body_hash", "failover", "overflow", "fallback"},
    "rendezvous_hash": {"session_hash", "body_hash", "failover", "fallback"},
    "sticky_least_loaded": {"sticky", "sticky_new", "failover", "fallback"},
}
HASH_POLICIES = ("consistent_hash", "rendezvous_hash")


@dataclass
class Add:
    number: int
    rank: str
    weight: int


@dataclass
class Change:
    what: str  # remove, set_healthy or set_draining
    which: int
    arguments: tuple[bool, ...]


@dataclass
class Load:
    which: int
    requests: int
    prefill: int
    output: int


@dataclass
class Ask:
    key: tuple[str, str] | None
    tried: list[int]


SESSIONS = st.one_of(
    st.builds("header:x-session-id:sess-{}".format, st.integers(0, 50)), st.text(max_size=20)
)
KEYS = st.one_of(
    st.tuples(st.just("session"), SESSIONS),
    st.tuples(st.just("body"), st.builds("request_hash:{:016x}".format, st.integers(0, 50))),
    st.none(),
)
WHICH = st.integers(0, 7)
# Equal weights and loads are the normal state, and ties must be met often.
ADDS = {
    "equal": st.builds(Add, st.integers(1, 9), st.sampled_from(["", "", "@0", "@1"]), st.just(1000)),
    "small": st.builds(
        Add, st.integers(1, 9), st.sampled_from(["", "", "@0", "@1"]), st.sampled_from([1000, 2000, 3000])
    ),
    "any": st.builds(Add, st.integers(1, 9), st.sampled_from(["", "", "@0", "@1"]), st.integers(10, 100_000)),
}
LOADS = st.one_of(
    st.builds(Load, WHICH, st.integers(0, 5), st.integers(0, 1), st.integers(0, 1)),
    st.builds(Load, WHICH, st.integers(0, 1000), st.integers(0, 10**6), st.integers(0, 10**6)),
)
CHANGES = st.one_of(
    st.builds(Change, st.just("remove"), WHICH, st.just(())),
    st.builds(Change, st.sampled_from(["set_healthy", "set_draining"]), WHICH, st.tuples(st.booleans())),
)
ASKS = st.builds(Ask, KEYS, st.lists(WHICH, max_size=2, unique=True))


@st.composite
def stories(draw: st.DrawFn) -> list[Any]:
    add = ADDS[draw(st.sampled_from(sorted(ADDS)))]
    story: list[Any] = draw(st.lists(add, min_size=2, max_size=8))
    for _ in range(draw(st.integers(1, 6))):
        story += draw(st.lists(st.one_of(LOADS, LOADS, CHANGES, add), max_size=4))
        story += draw(st.lists(ASKS, min_size=2, max_size=6))
    return story


KEYLESS_OPTIONS = st.fixed_dictionaries(
    {}, optional={"least_load_metric": st.sampled_from(["requests", "tokens"])}
)
HASH_OPTIONS = st.fixed_dictionaries(
    {
        "virtual_nodes": st.sampled_from([1, 2, 5, 10]),  # few, so that the twin stays quick
        "hash_function": st.sampled_from(["furc", "xxh3"]),
    },
    optional={
        "fallback_policy": st.sampled_from(["least_load", "random", "round_robin", "power_of_two"]),
        "hash_failover": st.sampled_from(["next", "first"]),
        "hash_load_factor": st.sampled_from([1000, 1001, 1250, 2000, 10_000]),
    },
)
SEEDS = st.integers(0, 2**64 - 1)


class Told:
    """A policy and its twin, living through the same story."""

    def __init__(self, name: str, seed: int, options: dict[str, Any]) -> None:
        self.name = name
        self.policy = testing.PolicyHarness(name, seed=seed, **options)
        self.slow = make_policy(name, seed, **options)
        self.fleet = Fleet()

    def tell(self, story: Iterable[Any]) -> Iterable[tuple[Ask, Any, Any]]:
        """Yields each question with both answers."""
        for step in story:
            members = self.fleet.members
            if isinstance(step, Add):
                url = f"http://w{step.number}:8000{step.rank}"
                if self.fleet.add(url, step.weight):
                    self.policy.add(url, step.weight / 1000)
            elif isinstance(step, Ask):
                tried = [position for position in step.tried if position < len(members)]
                source, text = step.key or (None, None)
                kind = {source: text} if source else {}
                answer = self.policy.choose(**kind, tried=tried)
                yield Ask(step.key, tried), answer, self.slow.choose(step.key, self.fleet, tried)
            elif members:
                worker = members[step.which % len(members)]
                if isinstance(step, Load):
                    worker.requests, worker.prefill, worker.output = step.requests, step.prefill, step.output
                    self.policy.set_load(worker.url, step.requests, step.prefill, step.output)
                else:
                    getattr(self.fleet, step.what)(worker.url, *step.arguments)
                    getattr(self.policy, step.what)(worker.url, *step.arguments)


def check(told: Told, ask: Ask, answer: Any) -> None:
    """What docs/reference/policies.md promises, looked at without the twin's way of finding it."""
    members = told.fleet.members
    eligible = told.fleet.eligible(ask.tried)
    if not eligible:
        assert answer is None
        return
    position, reason = answer
    event(reason)
    assert position in eligible
    assert reason in REASONS[told.name]
    if len(eligible) == 1:
        assert position == eligible[0]
    others = [members[i] for i in eligible if i != position]
    if told.name == "least_load":
        metric = told.slow.metric
        assert not any(load_order(other, metric) < load_order(members[position], metric) for other in others)
    if told.name == "power_of_two" and others:
        assert load_order(members[position]) <= max(map(load_order, others)), (
            "the strictly most loaded is not chosen"
        )
    if not isinstance(told.slow, KeyedPolicy):
        return
    assert (reason == "fallback") == (ask.key is None)
    if ask.key is None:
        return
    if isinstance(told.slow, ConsistentHash) and told.slow.load_factor:
        assert members[position].requests < cap(told.fleet, eligible, position, told.slow.load_factor)
    else:
        assert reason != "overflow"
    if isinstance(told.slow, RendezvousHash) and len({worker.weight for worker in members}) == 1:
        scores = [told.slow.score(ask.key[1], members[i]) for i in eligible]
        assert told.slow.score(ask.key[1], members[position]) == max(scores)


@pytest.mark.parametrize(
    "name", [name for name in REASONS if name not in (*HASH_POLICIES, "sticky_least_loaded")]
)
@given(seed=SEEDS, options=KEYLESS_OPTIONS, story=stories())
def test_keyless_policies_decide_as_their_slow_twins(name, seed, options, story):
    told = Told(name, seed, options)
    for ask, answer, slow_answer in told.tell(story):
        assert answer == slow_answer
        check(told, ask, answer)


@pytest.mark.parametrize("name", HASH_POLICIES)
@given(seed=SEEDS, options=HASH_OPTIONS, story=stories())
def test_hash_policies_decide_as_their_slow_twins(name, seed, options, story):
    told = Told(name, seed, options)
    for ask, answer, slow_answer in told.tell(story):
        assert answer == slow_answer
        check(told, ask, answer)


@given(
    options=st.fixed_dictionaries(
        {"max_sessions": st.sampled_from([1, 2, 3, 100])},
        optional={"fallback_policy": st.sampled_from(["least_load", "round_robin"])},
    ),
    story=stories(),
    finished=st.lists(SESSIONS, max_size=3),
)
def test_sessions_stick_as_the_slow_twin_says(options, story, finished):
    told = Told("sticky_least_loaded", 0, options)
    for number, (ask, answer, slow_answer) in enumerate(told.tell(story)):
        assert answer == slow_answer
        check(told, ask, answer)
        assert told.policy.sessions == len(told.slow.sessions) <= options["max_sessions"]
        if answer is not None and ask.key is not None:
            assert told.policy.choose(session=ask.key[1], tried=ask.tried) == (answer[0], "sticky")
        if number < len(finished):
            session = ask.key[1] if ask.key is not None else finished[number]
            assert told.policy.finish_session(session) == told.slow.finish(session)


@pytest.mark.parametrize("name", HASH_POLICIES)
@given(options=HASH_OPTIONS, story=stories(), sessions=st.lists(SESSIONS, min_size=1, max_size=10))
def test_a_keys_home_depends_on_the_members_alone(name, options, story, sessions):
    options.pop("hash_load_factor", None)
    told = Told(name, 0, options)
    list(told.tell(story))
    fresh = Told(name, 0, options)
    for worker in told.fleet.members:
        told.fleet.set_healthy(worker.url, True)
        told.policy.set_healthy(worker.url, True)
        told.policy.set_draining(worker.url, False)
        fresh.policy.add(worker.url, worker.weight / 1000)
    for session in sessions if told.fleet.members else []:
        answer = told.policy.choose(session=session)
        assert answer == fresh.policy.choose(session=session) == told.policy.choose_unplanned(session)
        assert answer[1] == "session_hash"


@given(
    numbers=st.lists(st.integers(1, 30), min_size=2, max_size=8, unique=True),
    function=st.sampled_from(["furc", "xxh3"]),
    sessions=st.lists(SESSIONS, min_size=5, max_size=40),
    data=st.data(),
)
def test_rendezvous_keys_of_a_worker_that_leaves_go_to_their_second_choice(numbers, function, sessions, data):
    urls = [f"http://w{number}:8000" for number in numbers]
    policy = testing.PolicyHarness("rendezvous_hash", hash_function=function)
    for url in urls:
        policy.add(url)
    gone = data.draw(st.sampled_from(urls))
    before = {session: urls[policy.choose(session=session)[0]] for session in sessions}
    second = {
        session: urls[policy.choose(session=session, tried=[urls.index(gone)])[0]] for session in sessions
    }
    policy.remove(gone)
    after = {session: policy.urls[policy.choose(session=session)[0]] for session in sessions}
    assert after == second
    assert all(after[session] == before[session] for session in sessions if before[session] != gone)
