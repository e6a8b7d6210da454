"""The names of vllm-project/router's balancer for debugging, for code that imports them.

It served prefill/decode disaggregation only, which is not built: `MiniLoadBalancer` says so when it is made.
"""

from __future__ import annotations

import ipaddress

from vllm_router._version import __version__
from vllm_router.router_args import RouterArgs

__all__ = ["MiniLoadBalancer", "maybe_wrap_ipv6_address"]


def maybe_wrap_ipv6_address(address: str) -> str:
    """An IPv6 address in brackets, as URLs have it; anything else as it is."""
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return f"[{address}]"


class MiniLoadBalancer:
    """Not built.

    Raises:
        ValueError: always.
    """

    def __init__(self, router_args: RouterArgs) -> None:
        raise ValueError(
            f"the mini load balancer is not implemented in vllm-router {__version__}, since it serves "
            "prefill/decode disaggregation only: use Router.from_args() without mini_lb, for the address "
            f"{router_args.host}:{router_args.port}"
        )
