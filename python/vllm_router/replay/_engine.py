"""The way to the C++ core: simulate(), and what it offers."""

from __future__ import annotations

from typing import Any

from vllm_router import _core
from vllm_router._flags import did_you_mean
from vllm_router.replay.trace import TraceError

COMPARISON_PREFIX = "compare_"


def core() -> Any:
    """`_core.replay`; an ImportError of one sentence in a build without it."""
    module = getattr(_core, "replay", None)
    if module is None:
        raise ImportError("the C++ extension was built without the replay; build it anew")
    return module


def comparison_policies() -> tuple[str, ...]:
    """Names of the policies that exist in the replay only."""
    return tuple(getattr(core(), "comparison_policies", ()))


def presets() -> dict[str, dict[str, Any]]:
    """Engines by name, the default first: coefficients and `what` they stand for."""
    found: dict[str, dict[str, Any]] = core().presets
    return found


def coefficients(preset: str) -> dict[str, float]:
    """The figures of a preset."""
    known = presets()
    if preset not in known:
        raise TraceError(
            f"engine is {preset!r}; it must be one of {', '.join(known)}" + did_you_mean(preset, known)
        )
    return {name: value for name, value in known[preset].items() if name != "what"}


def simulate(trace: dict[str, Any], routing: dict[str, Any], fleet: dict[str, Any]) -> dict[str, Any]:
    """One run. Releases the GIL; Ctrl-C ends it."""
    try:
        result: dict[str, Any] = core().simulate(trace, routing, fleet)
    except ValueError as error:
        raise TraceError(str(error)) from None
    return result
