"""The names of connectors, by which KV blocks get from prefill to decode workers, and what some of them need.

They are the core's: cpp/disaggregation/kv_connector.h.
"""

from __future__ import annotations

from vllm_router import _core
from vllm_router.settings.kinds import Choice

_CONNECTORS = _core.kv_connectors()

# auto: by the engine that workers name.
KV_CONNECTOR = Choice(("auto", *(one["name"] for one in _CONNECTORS)))
# Of these no worker serves a request alone.
NEVER_ALONE = frozenset(one["name"] for one in _CONNECTORS if not one["decode_can_prefill"])
# Workers of these tell the router where they are.
REGISTERING = frozenset(one["name"] for one in _CONNECTORS if one["registers"])
