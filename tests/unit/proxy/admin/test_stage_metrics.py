"""cpp/proxy/admin/stage_metrics.h: only a fleet with stages has these (tests/proxy/test_pd_metrics.py)."""

from tests.fakes.scrapes import A, page_of
from vllm_router import Router
from vllm_router import _core_testing as testing


def test_a_worker_is_in_the_families_of_its_stage():
    decode = "http://d:8000"
    page = page_of(testing.Lanes(Router(prefill_urls=[A], decode_urls=[decode])))
    assert page["pd_prefill_requests_total"].series == {(("worker", A),): 0}
    assert page["pd_decode_requests_total"].series == {(("worker", decode),): 0}


def test_a_fleet_without_stages_has_none_of_them():
    page = page_of(testing.Lanes(Router(policy="random", worker_urls=[A])))
    assert not any(name.startswith("pd_") and name != "pd_removed_members_total" for name in page)
