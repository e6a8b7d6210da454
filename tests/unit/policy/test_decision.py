"""cpp/policy/decision.h: names that metrics, headers and tickets show."""

from vllm_router import _core_testing as testing


def test_reasons_have_their_stable_names():
    assert testing.reason_names() == [
        "random",
        "round_robin",
        "least_loaded",
        "power_of_two",
        "session_hash",
        "body_hash",
        "failover",
        "overflow",
        "prefix_hash",
        "prefix_hit",
        "prefix_miss",
        "prefix_spread",
        "load_balance",
        "lowest_cost",
        "sticky",
        "sticky_new",
        "fallback",
        "pinned",
    ]


def test_match_units_have_names():
    assert testing.match_unit_names() == ["none", "bytes", "tokens", "blocks"]


def test_ends_are_found_by_name():
    for name in ("finished", "client_gone", "worker_failed", "not_sent"):
        assert testing.end_by_name(name) == name
    assert testing.end_by_name("failed") is None
