"""Priority classes and tenants in a replay: requests wait in the router's own queues, and figures of each.

    request ── a worker has room for its class ──────────────▶ worker
       └─▶ queue of its class, fair to tenants ── has room ──▶ worker
              └─▶ rejected: full, displaced by a higher class, or too late

The classes are those of the router's `--admission-config` (docs/how-to/share_a_fleet.md). Without them a
trace with classes or tenants is played as any other, and the same figures show what each of them got.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vllm_router.replay.capacity import percentile
from vllm_router.replay.trace import CLASSES, DEFAULT_CLASS, Trace, TraceError
from vllm_router.settings.admission import admission_of_yaml
from vllm_router.settings.programs import split_lines

# As the core says it: how a request ended at its router, and how it was dispatched.
REJECTED = {"queue_full": 3, "displaced": 4, "timeout": 5}
DISPATCHED = ("direct", "queued", "aged")

# As in the router's metrics.
MOST_TENANTS = 64
OTHER_TENANTS = "other"

Share = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Admission:
    """The classes of a router.

    Args:
        lines: As the core takes them; what is left out has its default, so "" are the defaults.
        search: Whether a request that waits knows the workers which have its prompt cached, as in the server.
    """

    lines: str = ""
    search: bool = True

    @classmethod
    def read(cls, path: str | Path) -> Admission:
        """Of a file of `--admission-config`.

        Raises:
            TraceError: the file cannot be read, or a line of it does not fit.
        """
        return cls(split_lines(cls._lines_of(path))[0] or "")

    @classmethod
    def members_of_programs(cls, path: str | Path) -> str:
        """What such a file says of programs; may be empty.

        Raises:
            TraceError: as read().
        """
        return split_lines(cls._lines_of(path))[1]

    @staticmethod
    def _lines_of(path: str | Path) -> str:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            raise TraceError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise TraceError(f"{path} is not UTF-8 text; save the file as UTF-8") from None
        try:
            return admission_of_yaml(text, Path(path).name)
        except ValueError as error:
            raise TraceError(str(error)) from None

    def check_stages(self, staged: bool) -> None:
        """A TraceError in front of prefill and decode workers."""
        if staged:
            raise TraceError(
                "admission is given for a fleet of prefill and decode workers, which have no priority "
                "classes yet; leave it out"
            )

    def as_core(self, trace: Trace) -> dict[str, Any]:
        """As the C++ core takes it."""
        return {
            "admission": self.lines,
            "admission_search": self.search,
            "tenant_names": list(trace.tenant_names),
        }


@dataclasses.dataclass(frozen=True)
class Window:
    """A span of a replay in seconds; the figures are those of requests that came, or ended, within it."""

    begin_s: float = 0.0
    end_s: float = math.inf

    def holds(self, times: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of these times are in it."""
        return (times >= self.begin_s) & (times < self.end_s)


def shares_of(
    trace: Trace, result: dict[str, Any], window: Window | None = None
) -> tuple[dict[str, Share], dict[str, Share]]:
    """What each class and each tenant got in a run.

    Args:
        trace: What was played.
        result: What `simulate` returned.
        window: Requests that came within it count for times and waits, those that ended for rates; None is
            the whole run.

    Returns:
        Two dicts by name, of classes and of tenants that have requests; empty where the trace has no such
        column. Of more than MOST_TENANTS those with fewer requests are `other`. Each share has `requests`,
        `finished`, `rejected`, `ttft_p50_s`, `ttft_p99_s` (a request without a first token waits for ever),
        `token_ms` (mean time between two tokens), `requests_per_s`, `tokens_per_s` (of responses),
        `hit_share`, `wait_p50_s`, `wait_p99_s` (at the router; 0 without admission), `queued` (that waited)
        and `aged`.
    """
    classes: dict[str, Share] = {}
    tenants: dict[str, Share] = {}
    span = window or Window()
    if trace.priority_classes is not None:
        for number, name in enumerate(CLASSES):
            chosen = trace.priority_classes == number
            if chosen.any():
                classes[name] = share_of(trace, result, chosen, span)
    if trace.tenants is not None:
        numbers, counts = np.unique(trace.tenants, return_counts=True)
        shown = numbers[np.sort(np.argsort(-counts, kind="stable")[:MOST_TENANTS])]
        for number in shown:
            name = trace.tenant_names[number] if trace.tenant_names else str(number)
            tenants[name] = share_of(trace, result, trace.tenants == number, span)
        if len(shown) < len(numbers):
            tenants[OTHER_TENANTS] = share_of(trace, result, ~np.isin(trace.tenants, shown), span)
    return classes, tenants


def share_of(trace: Trace, result: dict[str, Any], chosen: NDArray[np.bool_], window: Window) -> Share:
    """The figures of the chosen requests, bool[n]; `window` as of shares_of()."""
    arrival = np.asarray(result["arrival_s"], np.float64)
    ends = arrival + np.asarray(result["e2e_s"], np.float64)
    status = np.asarray(result["status"])
    came = chosen & window.holds(np.where(np.isnan(arrival), -math.inf, arrival))
    ended = chosen & (status == 0) & window.holds(np.where(np.isnan(ends), math.inf, ends))
    ttft = np.asarray(result["ttft_s"], np.float64)
    # Who got its first token behind the window waited at least until its end, and who got none for ever.
    waits = np.where(np.isnan(ttft), np.inf, ttft)[came]
    outputs = trace.output_tokens.astype(np.float64)
    several = ended & (outputs > 1)
    pace = (ends - arrival - ttft)[several] / (outputs[several] - 1)
    end_s = min(window.end_s, float(np.nanmax(np.where(np.isnan(ends), arrival, ends), initial=0.0)))
    seconds = max(1e-9, end_s - window.begin_s)
    has_waits = len(result.get("wait_s", ())) == len(trace)
    at_router = np.asarray(result["wait_s"], np.float64)[came] if has_waits else np.zeros(len(waits))
    how = np.asarray(result["dispatch"])[came] if has_waits else np.zeros(len(waits), np.uint8)
    inputs = trace.input_tokens.astype(np.float64)
    return {
        "requests": int(came.sum()),
        "finished": int(ended.sum()),
        "rejected": int(np.isin(status[came], list(REJECTED.values())).sum()),
        "ttft_p50_s": percentile(waits, 0.5),
        "ttft_p99_s": percentile(waits, 0.99),
        "token_ms": float(pace.mean() * 1000) if len(pace) else math.nan,
        "requests_per_s": float(ended.sum() / seconds),
        "tokens_per_s": float(outputs[ended].sum() / seconds),
        "hit_share": float(np.asarray(result["hit_tokens"])[ended].sum() / max(1.0, inputs[ended].sum())),
        "wait_p50_s": percentile(at_router, 0.5),
        "wait_p99_s": percentile(at_router, 0.99),
        "queued": int((how == DISPATCHED.index("queued")).sum()),
        "aged": int((how == DISPATCHED.index("aged")).sum()),
    }


def columns_of(trace: Trace, result: dict[str, Any]) -> dict[str, float]:
    """Columns `class_<name>_<figure>` and `tenant_<name>_<figure>` of a row; none without such requests."""
    classes, tenants = shares_of(trace, result)
    return {
        f"{kind}_{name}_{figure}": value
        for kind, shares in (("class", classes), ("tenant", tenants))
        for name, share in shares.items()
        for figure, value in share.items()
    }


def groups_of(row: dict[str, Any]) -> list[str]:
    """The beginnings of such columns in a row: `class_batch`, `tenant_search`."""
    end = "_wait_p50_s"
    return [name.removesuffix(end) for name in row if name.endswith(end)]


def all_default(trace: Trace) -> Trace:
    """The same requests without classes and tenants, as of a router that knows neither."""
    default = np.full(len(trace), DEFAULT_CLASS, np.uint8)
    return dataclasses.replace(
        trace,
        priority_classes=None if trace.priority_classes is None else default,
        tenants=None,
        tenant_names=(),
    )
