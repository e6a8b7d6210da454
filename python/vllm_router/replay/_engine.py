"""The way to the C++ core: simulate(), and what it offers."""

from __future__ import annotations

from typing import Any

from vllm_router import _core, _engines
from vllm_router.replay.trace import TraceError

COMPARISON_PREFIX = "compare_"


def core() -> Any:
    """`_core.replay`; an ImportError of one sentence in a build without it."""
    module = getattr(_core, "replay", None)
    if module is None:
        raise ImportError("the C++ extension was built without the replay; build it again")
    return module


def comparison_policies() -> tuple[str, ...]:
    """Names of the policies that exist in the replay only."""
    return tuple(getattr(core(), "comparison_policies", ()))


def coefficients(preset: str) -> dict[str, float]:
    """The figures of a preset."""
    try:
        return _engines.coefficients(preset)
    except ValueError as error:
        raise TraceError(str(error)) from None


def simulate(trace: dict[str, Any], routing: dict[str, Any], fleet: dict[str, Any]) -> dict[str, Any]:
    """One run. Releases the GIL; Ctrl-C ends it."""
    try:
        result: dict[str, Any] = core().simulate(trace, routing, fleet)
    except ValueError as error:
        raise TraceError(str(error)) from None
    return result
