"""The policy cache_aware against its twin, throw for throw, through changes of fleet and load."""

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tests.models.cache_aware import CacheAware
from tests.models.fleet import Fleet
from vllm_router import _core_testing as testing

# Conversations over few words, so that they share beginnings, and long enough that blocks of 64 bytes matter.
WORDS = st.sampled_from(["a", "é", "€uro", "🎲", "You are kind. " * 5, "x" * 64, "y" * 70])
TURNS = st.lists(WORDS, min_size=1, max_size=4)
WHICH = st.integers(0, 5)
MODELS = st.sampled_from([b"", b"", b"m\0", b"model-2\0"])
IDS = st.lists(st.sampled_from([0, 1, 2]), max_size=4)


def conversation(turns: list[str]) -> bytes:
    """A chat whose first word is the system's and whose others are said in turn."""
    roles = ["system", "user", "assistant", "user"]
    return "".join(f"\x1e{role}\x1f{word}" for role, word in zip(roles, turns, strict=False)).encode()


TEXTS = st.one_of(
    st.tuples(TURNS.map(conversation), st.just(True)),
    st.tuples(TURNS.map(lambda words: "".join(words).encode()), st.just(False)),
    st.just((b"", False)),
)
STEPS = st.one_of(
    st.tuples(st.just("ask"), TEXTS, MODELS, st.lists(WHICH, max_size=2, unique=True)),
    st.tuples(st.just("ask"), TEXTS, MODELS, st.just([])),
    st.tuples(st.just("ids"), IDS, st.integers(0, 20), st.lists(WHICH, max_size=1)),
    st.tuples(st.just("load"), WHICH, st.integers(0, 9)),
    st.tuples(st.just("add"), st.integers(1, 5), st.sampled_from([1000, 1000, 2500])),
    st.tuples(st.sampled_from(["remove", "heal", "hurt", "drain"]), WHICH),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "cache_threshold": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "balance_abs_threshold": st.integers(0, 4),
        "balance_rel_threshold": st.sampled_from([1000, 1100, 1500]),
        "balance_gate": st.sampled_from(["worker", "fleet"]),
        "spread_new_conversations": st.booleans(),
        "miss_choice": st.sampled_from(["least_load", "smallest_tree"]),
    },
)


@given(story=st.lists(STEPS, min_size=10, max_size=50), options=OPTIONS, seed=st.integers(0, 2**64 - 1))
def test_it_answers_as_its_twin_does(story: list[Any], options: dict[str, Any], seed: int) -> None:
    policy = testing.PolicyHarness("cache_aware", seed=seed, **options)
    twin, fleet = CacheAware(seed, **options), Fleet()
    for url in ("http://w1:8000", "http://w2:8000", "http://w3:8000"):
        policy.add(url)
        fleet.add(url)
    for what, which, *rest in story:
        if what in ("ask", "ids"):
            tried = [position for position in rest[1] if position < len(fleet.members)]
            if what == "ask":
                (text, framed), scope = which, rest[0]
                prompt, how = scope + text, {"framed": framed, "scope": len(scope)}
            else:
                # Pages of one id each, and some ids behind the last whole page.
                prompt, how = [page for page in which for _ in range(16)] + [7] * (rest[0] % 16), {}
            expected = twin.choose(prompt, fleet, tried, **how)
            assert policy.choose_prompt(prompt, tried=tried, **how) == expected
            if expected is None:
                continue
            _, reason, matched, total = expected
            event(reason)
            assert 0 <= matched <= total
            if reason == "prefix_hit":
                assert matched / total > twin.threshold - 64 / total
            if not tried:
                sizes = policy.cache_sizes()
                assert sizes == [twin.size(worker.id) for worker in fleet.members]
        elif what == "add":
            url = f"http://w{which}:8000"
            if fleet.add(url, rest[0]):
                policy.add(url, rest[0] / 1000)
        elif fleet.members:
            worker = fleet.members[which % len(fleet.members)]
            if what == "load":
                worker.requests = rest[0]
                policy.set_load(worker.url, rest[0])
            elif what == "remove":
                policy.remove(worker.url)
                fleet.remove(worker.url)
            elif what == "drain":
                policy.set_draining(worker.url, True)
                fleet.set_draining(worker.url, True)
            else:
                policy.set_healthy(worker.url, what == "heal")
                fleet.set_healthy(worker.url, what == "heal")


@given(
    st.lists(st.tuples(TEXTS.filter(lambda text: text[0]), st.booleans()), min_size=1, max_size=20),
    st.integers(512, 2048),
)
def test_a_worker_is_never_believed_to_hold_more_than_its_cache(
    texts: list[tuple[tuple[bytes, bool], bool]], limit: int
) -> None:
    policy = testing.PolicyHarness("cache_aware")
    policy.add("http://w1:8000")
    policy.set_cache_size("http://w1:8000", limit)
    for (text, framed), as_ids in texts:
        prompt, framed = (list(text), False) if as_ids else (text, framed)
        policy.choose_prompt(prompt, framed=framed)
        assert policy.cache_sizes()[0] <= limit
        remembered = len(prompt) - len(prompt) % 16 if as_ids else len(prompt)
        if remembered * (4 if as_ids else 1) <= limit // 2:  # what was used last is given up last
            assert policy.choose_prompt(prompt, framed=framed)[2] == remembered


@given(st.lists(TEXTS.filter(lambda text: text[0]), min_size=1, max_size=20), st.integers(1024, 4096))
def test_the_size_limit_holds_after_every_request(texts: list[tuple[bytes, bool]], limit: int) -> None:
    policy = testing.PolicyHarness("cache_aware", max_tree_size=limit)
    policy.add("http://w1:8000")
    policy.add("http://w2:8000")
    for number, (text, framed) in enumerate(texts):
        policy.choose_prompt(text * 4, framed=framed)
        assert policy.stats()["cache_routing"]["bytes"] <= limit
        policy.choose_prompt([number] * 64)
        assert policy.stats()["cache_routing"]["bytes"] <= limit
