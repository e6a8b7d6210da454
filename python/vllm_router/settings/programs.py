"""Programs of agents: what the flags and the file of --admission-config say, as one line for the core.

    --program-admission on                           ->   on fill=0.8 max_wait_ms=300000
    file:  programs: {fill: 0.8, max_wait: 300s}

The line is that of cpp/admission/program_settings.h. The reference router's `--enable-program-scheduling`
means `on`, and its `--program-scheduling-config-json` has members of its own; what the file says
counts more. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_router._messages import did_you_mean, show
from vllm_router.settings.names import name_only

__all__ = ["check_programs", "programs_line", "split_lines", "unread_members"]

MAX_FILL = 0.95
MAX_MS = 86_400_000
MAX_CAPACITY = 1_000_000_000_000
MAX_ACTIVE = 1_000_000
PREFIX = "programs "

# Of the reference's JSON: seconds, whole numbers, and shares.
_SECONDS = {
    "force_resume_timeout_seconds": "max_wait_ms",
    "max_acting_ttl_seconds": "max_ttl_ms",
    "paused_retention_ttl_seconds": "forget_ms",
    "queue_timeout_seconds": "reject_after_ms",
}
_COUNTS = {
    "token_capacity_per_dp_rank": "capacity",
    "token_capacity_per_target": "capacity",
    "max_active_programs_per_target": "max_active_per_worker",
}
_FILL = "high_watermark_ratio"
_ORDER = "resume_order"
# What it knows besides, which this router works out itself or has no use for.
_UNREAD = (
    "program_scheduling_enable_key",
    "binding_only",
    "global_queue",
    "cross_rank_headroom_ratio",
    "binding_strategy",
    "hash_virtual_nodes",
    "metrics_interval_seconds",
    "admission_waiting_request_threshold",
    "shared_prefix_freshness_warmup_seconds",
    "shared_prefix_freshness_kv_turnovers",
    "decode_buffer_tokens",
    "low_watermark_ratio",
    "max_segment_rounds",
    "stats_window_size",
    "enable_batch_gain_admission",
    "prefill_cost_model",
    "decode_throughput_model",
)
_READ = (*_SECONDS, *_COUNTS, _FILL, _ORDER)
_WHERE = "program_scheduling_config_json"


def split_lines(lines: str | None) -> tuple[str | None, str]:
    """Of the lines of a file: those of its classes, and the members of its programs."""
    if lines is None:
        return None, ""
    rows = lines.split("\n")
    programs = [row.removeprefix(PREFIX) for row in rows if row.startswith(PREFIX)]
    return "\n".join(row for row in rows if not row.startswith(PREFIX)), " ".join(programs)


def programs_line(options: Mapping[str, Any], of_file: str) -> str:
    """What the core gets.

    Args:
        options: `program_admission` and the reference's two, as `check_programs` has seen them.
        of_file: Members of the file of --admission-config; may be empty.
    """
    mode = options["program_admission"]
    if mode == "off" and options["enable_program_scheduling"]:
        mode = "on"
    if mode == "off":
        return "off"
    members = _members_of(options["program_scheduling_config_json"])
    members |= dict(word.split("=", 1) for word in of_file.split())
    return " ".join([mode, *(f"{name}={value}" for name, value in members.items())])


def check_programs(options: Mapping[str, Any]) -> None:
    """Raises ValueError: the reference's JSON has a mistake."""
    _members_of(options["program_scheduling_config_json"])


def unread_members(options: Mapping[str, Any]) -> list[str]:
    """Members of the reference's JSON that change nothing here."""
    text = options["program_scheduling_config_json"]
    if text is None:
        return []
    given = json.loads(text)
    mru = [_ORDER] if str(given.get(_ORDER, "fcfs")).lower() != "fcfs" else []
    return [name for name in given if name in _UNREAD] + mru


def _members_of(text: str | None) -> dict[str, str]:
    members: dict[str, str] = {}
    for name, value in json.loads(text).items() if text is not None else ():
        if name in _UNREAD or value is None:
            continue
        where = f"{_WHERE}: {name_only(name)} is {show(value)}; it must be"
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if name in _SECONDS:
            if not is_number or not 0.001 <= value <= MAX_MS / 1000:
                raise ValueError(f"{where} a number of seconds between 0.001 and {MAX_MS // 1000}")
            members[_SECONDS[name]] = str(round(value * 1000))
        elif name in _COUNTS:
            most = MAX_CAPACITY if _COUNTS[name] == "capacity" else MAX_ACTIVE
            if not isinstance(value, int) or not is_number or not 1 <= value <= most:
                raise ValueError(f"{where} a whole number between 1 and {most}")
            members[_COUNTS[name]] = str(value)
        elif name == _FILL:
            if not is_number or not 0 < value <= 1:
                raise ValueError(f"{where} a share above 0 and up to 1")
            members["fill"] = repr(min(float(value), MAX_FILL))
        elif name == _ORDER:
            if value not in ("mru", "fcfs"):
                raise ValueError(f"{where} mru or fcfs")
        else:
            hint = did_you_mean(name_only(name), _READ, f"; it has {', '.join(_READ)}")
            raise ValueError(f"{_WHERE}: {show(name_only(name))} is not known{hint}")
    return members
