"""cpp/worker/worker_registry.h: changes of the fleet, each published whole."""

import math
import threading

import pytest

from vllm_router import _core_testing as testing


def urls(registry):
    return [member[0] for member in registry.members()]


@pytest.fixture
def registry():
    registry = testing.Registry()
    for url in ("http://a:8000", "http://b:8000@0", "http://b:8000@1", "http://b:8000@2", "http://c:8000"):
        registry.add(url)
    return registry


def test_names_are_refused_once_somebody_connects(registry):
    """mending row 52: a fleet of names is for embedding; one that is served needs addresses."""
    registry.add("ray://x")
    registry.add("name://X@1")
    with pytest.raises(ValueError, match=r'INVALID.*"ray://x" is a name, .* give their http://host:port'):
        registry.require_addresses()
    registry.remove("ray://x")
    registry.set_healthy("name://X", False)
    assert registry.view.eligible == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="NOT_FOUND"):
        registry.remove("name://x")
    registry.remove("name://X")
    registry.require_addresses()
    with pytest.raises(ValueError, match=r'"name://X" is a name'):
        registry.add("name://X")


def test_a_known_worker_may_be_spelled_in_another_way(registry):
    registry.set_draining("HTTP://A:8000/", True)
    assert registry.view.eligible == [1, 2, 3, 4]
    registry.remove("http://B:8000/@1")
    assert "http://b:8000@1" not in urls(registry)


@pytest.mark.parametrize("url", ["http://a:8000", "http://A:8000/", "http://b:8000@1"])
def test_adding_twice_is_refused(registry, url):
    before = registry.version
    with pytest.raises(
        ValueError, match=r"ALREADY_EXISTS: worker .* already exists in the fleet; remove it first"
    ):
        registry.add(url)
    assert registry.version == before


def test_adding_what_drains_says_so(registry):
    registry.set_draining("http://a:8000", True)
    with pytest.raises(
        ValueError,
        match=r"already exists in the fleet, drained by an admin; .* DELETE /admin/drain\?url=http://a",
    ):
        registry.add("http://a:8000")


@pytest.mark.parametrize("change", ["remove", "set_healthy", "set_draining"])
def test_an_unknown_worker_is_answered_with_the_nearest(registry, change):
    arguments = [] if change == "remove" else [True]
    with pytest.raises(
        ValueError, match=r'NOT_FOUND: no worker "http://c:8080" .* did you mean http://c:8000?'
    ):
        getattr(registry, change)("http://c:8080", *arguments)
    with pytest.raises(ValueError, match="NOT_FOUND"):
        getattr(registry, change)("http://b:8000@9", *arguments)
    with pytest.raises(ValueError, match="NOT_FOUND"):
        getattr(registry, change)("not a url", *arguments)


def test_an_unknown_worker_of_an_empty_fleet_has_no_nearest():
    with pytest.raises(ValueError, match=r"of 0$"):
        testing.Registry().remove("http://a")


@pytest.mark.parametrize("weight", [0.0, -1.0, 0.009, 100.1, math.nan, math.inf, -math.inf])
def test_a_weight_out_of_range_names_the_range(weight):
    registry = testing.Registry()
    with pytest.raises(ValueError, match=r"must be between 0.01 and 100 \(default 1\)"):
        registry.add("http://a", weight)
    assert registry.members() == []


@pytest.mark.parametrize(
    ("weight", "thousandths"), [(1, 1000), (0.01, 10), (100, 100_000), (0.3, 300), (2.0006, 2001)]
)
def test_weights_are_kept_in_thousandths(weight, thousandths):
    registry = testing.Registry()
    registry.add("http://a", weight)
    assert registry.members()[0][2] == thousandths


def test_of_many_added_at_once_all_or_none_join():
    registry = testing.Registry()
    registry.add("http://z")
    for bad in (("http://a b", 1.0), ("http://b", 1.0), ("http://z", 1.0), ("http://d", 0.0)):
        with pytest.raises(ValueError, match=r"."):
            registry.add_all([("http://a", 1.0), ("http://b", 1.0), bad])
    assert urls(registry) == ["http://z"]
    assert registry.view.membership == 1
    registry.add_all([("http://a", 1.0), ("http://b", 2.0)])
    assert urls(registry) == ["http://z", "http://a", "http://b"]
    assert [member[1] for member in registry.members()] == [0, 1, 2]
    assert registry.view.plan == (2, 2), "planned and published once"
    registry.add_all([])
    assert registry.view.membership == 2


def test_the_fleet_has_a_limit():
    registry = testing.Registry()
    registry.add_all([(f"http://w{i}", 1.0) for i in range(4096)])
    with pytest.raises(ValueError, match=r"RESOURCE_EXHAUSTED: adding 1 to the 4096 workers .* of 4096"):
        registry.add("http://one-more")
    registry.remove("http://w17")
    registry.add("http://one-more")


def test_every_change_is_planned_before_it_is_published(registry):
    number, membership = registry.view.plan
    assert membership == registry.view.membership
    registry.set_healthy("http://a:8000", False)
    assert registry.view.plan == (number + 1, membership)
    registry.remove("http://a:8000")
    assert registry.view.plan == (number + 2, membership + 1)


def test_a_change_that_changes_nothing_publishes_nothing(registry):
    before = registry.version
    registry.set_healthy("http://a:8000", True)
    registry.set_draining("http://b:8000", False)
    assert registry.version == before


def test_a_view_that_is_held_never_changes(registry):
    view = registry.view
    registry.remove("http://b:8000")
    registry.set_healthy("http://a:8000", False)
    assert view.eligible == [0, 1, 2, 3, 4]
    assert view.find("http://b:8000@1") == 2


def test_threads_may_change_the_fleet_at_once():
    registry = testing.Registry()

    def change(name):
        for i in range(50):
            registry.add(f"http://{name}:{8000 + i}")
            registry.set_healthy(f"http://{name}:{8000 + i}", False)
            if i % 2:
                registry.remove(f"http://{name}:{8000 + i}")

    threads = [threading.Thread(target=change, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.members()) == 100
    assert len({member[1] for member in registry.members()}) == 100
    assert registry.view.eligible == []
    assert registry.view.membership == 4 * 50 + 4 * 25


def test_lists_of_models_wait_for_one_publication():
    registry = testing.Registry()
    urls = [f"http://w{i}:8000" for i in range(4)]
    registry.add_all([(url, 1.0) for url in urls])
    view = registry.view
    assert all(registry.say_models(url, [url]) for url in urls[:3])
    assert registry.models() == {}
    registry.publish_models()
    assert [name for name, (listed, _) in registry.models().items() if listed] == urls[:3]
    assert not registry.say_models(urls[0], [urls[0]]), "nothing has changed"
    assert registry.say_models(urls[3], [urls[3]])
    registry.set_healthy(urls[0], False)  # is published, and the list with it
    assert registry.models()[urls[3]] == ([urls[3]], [urls[3]])
    assert view.eligible == [0, 1, 2, 3]
