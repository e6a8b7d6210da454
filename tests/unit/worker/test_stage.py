"""cpp/worker/stage.h: what a worker does in a fleet of two stages."""

import pytest

from vllm_router import _core_testing as testing


def test_names_are_those_of_worker_type():
    assert testing.stage_names() == ["regular", "prefill", "decode"]
    assert all(map(testing.stage_is_known, testing.stage_names()))
    assert not any(map(testing.stage_is_known, ["", "Prefill", "encode", "all"]))


@pytest.fixture
def registry():
    registry = testing.Registry(staged=True)
    registry.set_role("http://p:8000", "prefill", 8998)
    registry.set_role("http://d:8000", "decode")
    registry.add("http://p:8000")
    registry.add("http://d:8000")
    return registry


def test_a_worker_has_the_stage_and_the_port_that_it_was_declared_with(registry):
    assert registry.roles() == [("http://p:8000", "prefill", 8998), ("http://d:8000", "decode", None)]
    regular = testing.Registry()
    regular.add("http://a:8000")
    assert regular.roles() == [("http://a:8000", "regular", None)]


def test_each_stage_is_a_view_of_its_own_with_a_plan_of_its_own(registry):
    #   position       0   1
    #   whole          p   d      no plan
    #   prefill       [0    ]     plan of the prefill policy
    #   decode        [    1]     plan of the decode policy
    whole, prefill, decode = registry.view, registry.stage_view("prefill"), registry.stage_view("decode")
    assert (whole.eligible, prefill.eligible, decode.eligible) == ([0, 1], [0], [1])
    assert (whole.stage, prefill.stage, decode.stage) == ("regular", "prefill", "decode")
    assert (whole.plan, prefill.plan_stage, decode.plan_stage) == (None, "prefill", "decode")
    assert (prefill.in_rotation, decode.in_rotation) == (1, 1)
    assert not prefill.has_stages
    assert whole.has_stages


def test_the_next_plan_of_a_stage_follows_its_own_last_one(registry):
    before = registry.stage_view("prefill").plan[0], registry.stage_view("decode").plan[0]
    registry.set_healthy("http://p:8000", False)
    after = registry.stage_view("prefill").plan[0], registry.stage_view("decode").plan[0]
    assert after == (before[0] + 1, before[1] + 1)


def test_a_stage_without_workers_is_an_empty_view(registry):
    registry.remove("http://d:8000")
    assert registry.stage_view("decode").eligible == []
    assert registry.stage_view("prefill").eligible == [0]
    empty = testing.Registry(staged=True)
    assert (empty.stage_view("prefill").eligible, empty.stage_view("decode").eligible) == ([], [])


def test_a_fleet_without_stages_has_no_views_of_them():
    registry = testing.Registry()
    registry.add("http://a:8000")
    assert not registry.view.has_stages
    assert registry.view.plan_stage == "regular"


def test_a_fleet_has_stages_or_it_has_none(registry):
    registry.set_role("http://r:8000", "regular")
    with pytest.raises(ValueError, match=r"r:8000 has no stage.*declare it with worker_type prefill or dec"):
        registry.add("http://r:8000")
    regular = testing.Registry()
    regular.set_role("http://p:8000", "prefill")
    with pytest.raises(ValueError, match=r"p:8000 is declared as prefill.*--mode pd, or declare the work"):
        regular.add("http://p:8000")
