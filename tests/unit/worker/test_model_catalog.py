"""cpp/worker/model_catalog.h: which worker serves which model, against its twin and workers that lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.model_catalog import MAX_NAME, MAX_NAMES, MAX_PER_WORKER, Catalog
from vllm_router._core_testing import Registry

FLEET = [f"http://w{i}:1" for i in range(5)]
NAMES = st.sampled_from(["a", "b", "c", "org/d", "é", "", "x\ny", "\x7f", "n" * 256, "n" * 257])
CARDS = st.lists(st.tuples(NAMES, st.sampled_from(["", "a"])), max_size=6)


def registry_of(fleet):
    registry = Registry()
    for url in fleet:
        registry.add(url, 1.0)
    return registry


@given(
    st.lists(st.sampled_from(FLEET), unique=True, max_size=5),
    st.lists(st.tuples(st.sampled_from(FLEET), st.one_of(CARDS, st.none())), max_size=8),
    st.lists(st.sampled_from(["a", "z"]), unique=True),
)
def test_pools_are_those_of_the_twin(fleet, said, expected):
    registry, twin = registry_of(fleet), Catalog(expected=expected)
    registry.expect_models(expected, 0)
    for base, cards in said:
        if base not in fleet:
            continue
        if cards is None:
            registry.await_models(base)
            twin.wait_for(base)
            continue
        registry.set_models(base, cards)
        twin.say(base, cards)
    models = registry.models()
    listed, pools = twin.listed(fleet), twin.pools(fleet)
    assert {name: one for name, (one, _) in models.items() if one} == listed
    assert {name: pool for name, (one, pool) in models.items() if one} == pools
    assert {name for name, (one, _) in models.items() if not one} >= set(expected) - set(listed)
    assert registry.models_decide() == twin.decides(fleet) or set(models) - set(listed) - set(expected)


def test_a_worker_of_which_nothing_is_known_serves_anything():
    registry = registry_of(FLEET[:3])
    registry.set_models(FLEET[0], [("a", "")])
    assert registry.models() == {"a": ([FLEET[0]], FLEET[:3])}
    assert not registry.models_decide()
    registry.set_models(FLEET[1], [("b", "")])
    assert registry.models() == {"a": ([FLEET[0]], [FLEET[0], FLEET[2]]), "b": ([FLEET[1]], FLEET[1:3])}
    registry.forget_models(FLEET[1])
    assert registry.models()["a"] == ([FLEET[0]], FLEET[:3])


def test_a_worker_that_does_not_respond_serves_what_all_others_list_or_nothing():
    registry = registry_of(FLEET[:3])
    registry.await_models(FLEET[2])
    assert not registry.models_decide()
    for url in FLEET[:2]:
        registry.set_models(url, [("a", "")])
    assert not registry.models_decide()
    assert registry.models() == {"a": (FLEET[:2], FLEET[:3])}
    registry.set_models(FLEET[1], [("b", "")])
    assert registry.models() == {"a": ([FLEET[0]], [FLEET[0]]), "b": ([FLEET[1]], [FLEET[1]])}
    registry.forget_models(FLEET[2])  # it responds, and has no list
    assert registry.models()["a"] == ([FLEET[0]], [FLEET[0], FLEET[2]])
    registry.set_models(FLEET[2], [("b", "")])
    registry.await_models(FLEET[2])  # what it listed before holds
    assert registry.models()["b"] == (FLEET[1:3], FLEET[1:3])


def test_a_model_whose_workers_left_is_remembered_and_an_expected_one_is_known_from_the_start():
    registry = registry_of(FLEET[:2])
    registry.expect_models(["z"], 3600)
    registry.set_models(FLEET[0], [("a", "")])
    registry.set_models(FLEET[1], [("b", "")])
    registry.remove(FLEET[1])
    assert registry.models() == {"z": ([], []), "a": ([FLEET[0]], [FLEET[0]]), "b": ([], [])}
    assert registry.base_models() == ["a"]
    registry.expect_models([], 0)
    registry.set_models(FLEET[0], [("c", "")])
    assert "z" not in registry.models()


def test_one_worker_may_list_a_thousand_names_and_all_together_four_thousand():
    registry = registry_of(FLEET)
    many = [(f"w0-{i}", "") for i in range(MAX_PER_WORKER + 10)]
    assert registry.set_models(FLEET[0], many) == 10
    for n, url in enumerate(FLEET[1:4], 1):
        assert registry.set_models(url, [(f"w{n}-{i}", "") for i in range(MAX_PER_WORKER)]) == 0
    assert registry.set_models(FLEET[4], [("late", ""), ("w0-0", "")]) == 1
    models = registry.models()
    assert len(models) == MAX_NAMES
    assert "late" not in models
    assert models["w0-0"][0] == [FLEET[0], FLEET[4]]


def test_a_worker_that_lists_other_names_each_time_costs_its_own():
    registry = registry_of(FLEET)
    registry.set_models(FLEET[0], [("a", ""), ("b", "")])
    registry.set_models(FLEET[0], [("a", "")])  # b is remembered
    for turn in range(6):
        registry.set_models(FLEET[1], [(f"junk-{turn}-{i}", "") for i in range(MAX_PER_WORKER)])
    assert registry.set_models(FLEET[2], [("new", "")]) == 0
    models = registry.models()
    assert models["new"][0] == [FLEET[2]]
    assert "b" in models
    assert len(models) <= MAX_NAMES
    registry.expect_models([f"expected-{i}" for i in range(MAX_NAMES)], 3600)
    assert set(registry.models()) >= {f"expected-{i}" for i in range(MAX_NAMES)} | {"a", "new"}


def test_what_a_model_is_most_of_its_workers_say():
    registry = registry_of(FLEET[:3])
    for url in FLEET[:3]:
        registry.set_models(url, [("a", ""), ("x", "")])
    registry.set_models(FLEET[0], [("a", "x"), ("x", "")])  # one that is wrong, and first
    assert registry.base_models() == ["a", "x"]
    # A rolling update changes them one after another.
    registry.set_models(FLEET[1], [("a", "x"), ("x", "")])
    assert registry.base_models() == ["x"]


@pytest.mark.parametrize("name", ["", "a\n", "\x00", "\x1b[2J", "n" * (MAX_NAME + 1)])
def test_what_is_no_name_is_left_out(name):
    registry = registry_of(FLEET[:1])
    assert registry.set_models(FLEET[0], [(name, ""), ("a", ""), ("b", name or "\t")]) == 2
    assert list(registry.models()) == ["a"]


def test_hundreds_of_pools_still_hold_their_workers():
    """Beyond the views that are kept one is made when it is needed."""
    fleet = [f"http://w{i}:1" for i in range(300)]
    registry = registry_of(fleet)
    for n, url in enumerate(fleet):
        registry.set_models(url, [(f"m{n}", "")])
    assert {name: pool for name, (_, pool) in registry.models().items()} == {
        f"m{n}": [url] for n, url in enumerate(fleet)
    }


PARENTS = {"x": "a", "y": "b", "z": "x"}
FAMILY_CARDS = st.lists(st.sampled_from(["a", "b", "x", "y", "z"]), max_size=5, unique=True)


@given(
    st.lists(st.sampled_from(FLEET), unique=True, max_size=5),
    st.lists(st.tuples(st.sampled_from(FLEET), FAMILY_CARDS), max_size=8),
)
def test_with_spread_an_adapters_pool_has_the_workers_of_its_parent(fleet, said):
    registry, twin = registry_of(fleet), Catalog(spread=True, parents=PARENTS)
    registry.expect_models([], 0, spread=True)
    for base, names in said:
        if base in fleet:
            cards = [(name, PARENTS.get(name, "")) for name in names]
            registry.set_models(base, cards)
            twin.say(base, cards)
    models = registry.models()
    assert {name: pool for name, (one, pool) in models.items() if one} == twin.pools(fleet)
    assert registry.residents_of_models() == twin.residents(fleet)
    if not set(models) - set(twin.listed(fleet)):
        assert registry.models_decide() == twin.decides(fleet)


def test_spread_begins_and_ends_while_the_fleet_stays():
    registry = registry_of(FLEET[:3])
    for url in FLEET[:3]:
        registry.set_models(url, [("a", ""), ("sql", "a")] if url == FLEET[0] else [("a", "")])
    assert registry.models()["sql"] == (FLEET[:1], FLEET[:1])
    assert registry.residents_of_models() == {}
    registry.expect_models([], 3600, spread=True)
    assert registry.models()["sql"] == (FLEET[:1], FLEET[:3])
    assert registry.residents_of_models() == {"sql": FLEET[:1]}
    registry.set_models(FLEET[0], [("a", "")])  # unloaded, and may be loaded again
    assert registry.models()["sql"] == ([], FLEET[:3])
    registry.expect_models([], 3600)
    assert registry.models()["sql"] == ([], [])


def test_hundreds_of_sets_of_workers_that_have_an_adapter():
    """Beyond the views that are kept one is made when it is needed."""
    fleet = [f"http://w{i}:1" for i in range(9)]
    registry, twin = registry_of(fleet), Catalog(spread=True, parents={f"l{i}": "a" for i in range(300)})
    registry.expect_models([], 3600, spread=True)
    for n, url in enumerate(fleet):
        cards = [("a", ""), *((f"l{i}", "a") for i in range(300) if i >> n & 1)]
        registry.set_models(url, cards)
        twin.say(url, cards)
    assert registry.residents_of_models() == twin.residents(fleet)
    assert len(registry.residents_of_models()) == 299
