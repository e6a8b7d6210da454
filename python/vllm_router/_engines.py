"""Figures of a simulated engine: presets and YAML files, for the replay and for simulated workers alike.

Both run the same model; docs/explanation/engine_model.md has what its coefficients mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm_router import _core
from vllm_router._messages import did_you_mean, quoted

# The step of an engine: names and units as in the core's EngineCoefficients.
COEFFICIENTS = (
    "step_ms",
    "prefill_us_per_token",
    "attention_ns_per_token2",
    "decode_us_per_sequence",
    "context_ns_per_token",
)
# What else a file may say.
SETTINGS = ("engine", "max_running", "step_tokens", "cache_tokens")


def presets() -> dict[str, dict[str, Any]]:
    """Engines by name, the replay's default first: coefficients and `what` they stand for."""
    found: dict[str, dict[str, Any]] = _core.replay.presets
    return found


def coefficients(preset: str) -> dict[str, float]:
    """The figures of a preset.

    Raises:
        ValueError: there is none of that name.
    """
    known = presets()
    if preset not in known:
        raise ValueError(
            f"engine is {quoted(preset)}; it must be one of {', '.join(known)}" + did_you_mean(preset, known)
        )
    return {name: value for name, value in known[preset].items() if name != "what"}


def is_file(engine: str) -> bool:
    """Whether it names a YAML file, not a preset."""
    return Path(engine).suffix in (".yaml", ".yml") or Path(engine).is_file()


def read_engine(path: str | Path) -> dict[str, Any]:
    """What a YAML file says: `coefficients` by name, and those of SETTINGS that it has.

    Raises:
        ValueError: the file cannot be read, or a name is not known.
    """
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise ValueError(f"the engine's file {path} cannot be read: {reason}") from None
    if not isinstance(values, dict):
        raise ValueError(f"the engine's file {path} must hold names with values, such as step_ms: 12")
    known = (*COEFFICIENTS, *sorted(SETTINGS))
    settings: dict[str, Any] = {"coefficients": {}}
    for name, value in values.items():
        if name in SETTINGS:
            settings[name] = value
        elif name in COEFFICIENTS:
            settings["coefficients"][name] = value
        else:
            raise ValueError(
                f"{path} has {name}, which is not a setting of an engine"
                + did_you_mean(str(name), known, f"; they are {', '.join(known)}")
            )
    return settings
