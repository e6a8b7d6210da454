"""cpp/policy/routing_key.h: a policy gets the parts that it needs, and no others are worked out."""

import pytest

from vllm_router import Router

BAD_JSON = b'{"user": '


@pytest.mark.parametrize("policy", ["random", "round_robin", "least_load", "power_of_two"])
def test_a_policy_without_a_key_never_reads_the_body(policy: str) -> None:
    router = Router(policy=policy, worker_urls=["http://a:8000"])
    with router.select(body=BAD_JSON, headers={"X-Session-ID": "s"}) as ticket:
        assert ticket.reason not in ("session_hash", "body_hash", "fallback")


@pytest.mark.parametrize("policy", ["consistent_hash", "rendezvous_hash"])
def test_the_source_of_the_key_is_the_reason(policy: str) -> None:
    router = Router(policy=policy, worker_urls=["http://a:8000", "http://b:8000"])
    reasons = []
    for arguments in (
        {"headers": {"X-Session-ID": "s"}, "body": BAD_JSON},
        {"body": b'{"user": "u"}'},
        {"body": b"{}"},
        {},
    ):
        with router.select(**arguments) as ticket:
            reasons.append(ticket.reason)
    assert reasons == ["session_hash", "session_hash", "body_hash", "fallback"]
