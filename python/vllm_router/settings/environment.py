"""Settings that the environment may set, so that a start script of NVIDIA Dynamo keeps its variables.

    DYN_SHARED_CACHE_TYPE=hicache vllm-router …          as --shared-cache-type hicache

The command line comes first, then VLLM_ROUTER_*, then DYN_*, then the YAML file. RouterArgs in Python reads
none of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from vllm_router._messages import quoted
from vllm_router.settings.kinds import Unfit
from vllm_router.settings.names import FLAGS

logger = logging.getLogger("vllm_router")

NAMES = ("shared_cache_type", "shared_cache_multiplier")
_PREFIXES = ("VLLM_ROUTER_", "DYN_")


def settings_of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Field name to checked value, of the variables that are set and not empty; the log names each.

    Raises:
        ValueError: a value does not fit; the sentence names the variable.
    """
    found: dict[str, Any] = {}
    for name in NAMES:
        flag = FLAGS[name]
        for variable in (prefix + name.upper() for prefix in _PREFIXES):
            text = environment.get(variable, "").strip()
            if not text:
                continue
            try:
                found[name] = flag.kind.parse([text])
            except Unfit as unfit:
                limits = str(unfit) or flag.kind.limits
                raise ValueError(
                    f"{variable} of the environment is {quoted(text)}; it must be {limits}: correct it, or "
                    f"unset it and use {flag.spelling}"
                ) from None
            logger.warning("%s is taken from %s of the environment", flag.spelling, variable)
            break
    return found
