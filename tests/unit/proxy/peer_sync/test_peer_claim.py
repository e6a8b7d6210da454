"""cpp/proxy/peer_sync/peer_claim.h: what a router does is told once, by a server or without one."""

import pytest

from tests.unit.proxy.peer_sync.test_joined_peers import JOINED, made
from vllm_router import Router


def test_a_router_shares_once(redis):
    one = made(peer_sync=redis.url)
    with one.join_peers() as peers:
        with pytest.raises(ValueError, match="shares with others already"):
            one.join_peers()
        peers.stop()
        one.join_peers().stop()
    served = Router("auto", ["http://127.0.0.1:9"], **JOINED)
    with served.serve(peer_sync=redis.url, log_level="error"), pytest.raises(ValueError, match="already"):
        served.join_peers(redis.url)
    with served.join_peers(redis.url), pytest.raises(ValueError, match="already"):
        served.serve(peer_sync=redis.url)


def test_a_router_that_was_made_with_peers_is_served_with_them(redis):
    router = Router("auto", ["http://127.0.0.1:9"], peer_sync=redis.url, router_name="one", **JOINED)
    with router.serve(log_level="error"), pytest.raises(ValueError, match="already"):
        router.join_peers()
    with router.serve(peer_sync=None, log_level="error"):
        router.join_peers().stop()
