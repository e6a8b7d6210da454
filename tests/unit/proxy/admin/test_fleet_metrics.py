"""cpp/proxy/admin/fleet_metrics.h: models and sources of a fleet that has neither."""

from tests.fakes.scrapes import A, page_of
from vllm_router import Router
from vllm_router import _core_testing as testing


def test_a_fleet_whose_models_are_not_known_has_demand_of_others_alone():
    page = page_of(testing.Lanes(Router(policy="random", worker_urls=[A])))
    assert page["models"].value() == 0
    assert page["model_workers"].series == {}
    assert page["model_demand_total"].values_of("model") == {"other"}
