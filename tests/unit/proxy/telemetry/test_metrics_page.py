"""cpp/proxy/telemetry/metrics_page.h: families as text, and their names of the previous release."""

from tests.fakes.prometheus_text import parse
from tests.fakes.scrapes import page_of
from vllm_router import Router
from vllm_router import _core_testing as testing


def test_a_former_name_has_the_same_series_and_names_the_new_one():
    lanes = testing.Lanes(Router(policy="random"))
    page = page_of(lanes)
    assert page["seats_taken"].series == page["concurrent_requests"].series
    help_line = "# HELP vllm_router_seats_taken Deprecated: use vllm_router_concurrent_requests.\n"
    assert help_line in lanes.text()


def test_every_family_has_the_routers_prefix_and_ends_in_a_line():
    text = testing.Lanes(Router(policy="random")).text()
    assert all(name.startswith("vllm_router_") for name in parse(text))
    assert text.endswith("\n")
