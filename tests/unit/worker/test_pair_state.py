"""cpp/worker/pair_state.h: a worker is in rotation once all is known that pairs need; with a slow twin."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.models.pair_state import Member, PairFleet
from vllm_router import _core_testing as testing

URLS = [f"http://w{i}:8000" for i in range(5)]
# What an operator reads, by what the twin says.
TEXTS = {
    "": "",
    "id": "GET /query",
    "engine": "GET /v1/models",
    "other": "another engine",
    "partner": "no decode worker of its kv_group",
}


class Both:
    """A registry and its twin; those with an even number are prefill workers."""

    def __init__(self, engine_ids: bool, one_engine: bool) -> None:
        self.registry = testing.Registry(staged=True)
        for i, url in enumerate(URLS):
            self.registry.set_role(url, "decode" if i % 2 else "prefill")
        self.registry.set_pair_rule(engine_ids, one_engine)
        self.twin = PairFleet(engine_ids, one_engine)

    def add(self, url: str, group: str = "") -> None:
        if url in [member.url for member in self.twin.members]:
            return
        stage = "decode" if URLS.index(url) % 2 else "prefill"
        self.registry.set_role(url, stage, None, group)
        self.registry.add(url)
        self.twin.members.append(Member(url, stage, group=group))

    def remove(self, url: str) -> None:
        if url not in [member.url for member in self.twin.members]:
            return
        self.registry.remove(url)
        self.twin.members.remove(self.twin.find(url))

    def learn(self, url: str, engine_id: str | None, engine: str) -> None:
        if url not in [member.url for member in self.twin.members]:
            return
        self.registry.set_facts(url, engine_id, engine)
        member = self.twin.find(url)
        member.engine_id, member.engine = engine_id, engine
        self.registry.refresh()

    def must_agree(self) -> None:
        engine, members = self.registry.pairs()
        expected_engine, expected = self.twin.publish()
        assert engine == expected_engine
        assert [url for url, _, _ in members] == [url for url, _ in expected]
        for (_, in_rotation, text), (_, obstacle) in zip(members, expected, strict=True):
            assert in_rotation == (obstacle == "")
            assert TEXTS[obstacle] in text
            assert bool(text) == bool(obstacle)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(URLS), st.sampled_from(["", "", "a", "b"])),
        st.tuples(st.just("remove"), st.sampled_from(URLS)),
        st.tuples(
            st.just("learn"),
            st.sampled_from(URLS),
            st.sampled_from([None, "e0", "e1"]),
            st.sampled_from(["", "vllm", "sglang"]),
        ),
    ),
    max_size=40,
)


@given(engine_ids=st.booleans(), one_engine=st.booleans(), steps=STEPS)
def test_the_registry_agrees_with_its_twin(engine_ids, one_engine, steps):
    both = Both(engine_ids, one_engine)
    for name, *arguments in steps:
        getattr(both, name)(*arguments)
        both.must_agree()


def test_the_first_engine_holds_until_none_of_its_workers_is_left():
    both = Both(engine_ids=False, one_engine=True)
    for url in URLS[:3]:
        both.add(url)
    for url, engine in ((URLS[1], "sglang"), (URLS[0], "vllm"), (URLS[2], "sglang")):
        both.learn(url, None, engine)
        both.must_agree()
    assert both.registry.pairs()[0] == "sglang"
    both.remove(URLS[1])
    assert both.registry.pairs()[0] == "sglang"
    both.remove(URLS[2])
    both.must_agree()
    assert both.registry.pairs()[0] == "vllm"


def test_a_worker_that_is_added_again_is_not_known():
    both = Both(engine_ids=True, one_engine=False)
    both.add(URLS[0])
    both.learn(URLS[0], "e0", "")
    assert both.registry.pairs()[1][0][1]
    both.remove(URLS[0])
    both.add(URLS[0])
    both.must_agree()
    assert not both.registry.pairs()[1][0][1]


@pytest.mark.parametrize("rule", [(False, False), (True, False)])
def test_decode_workers_need_no_engine_id(rule):
    both = Both(*rule)
    both.add(URLS[1])
    both.must_agree()
    assert both.registry.pairs()[1][0][1]
