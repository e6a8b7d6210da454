"""Programs in a replay: sessions that wait at their router while the KV caches have no room for them.

    turn ── its program is active, or there is room ──▶ worker
      └─▶ waits until another program ends or gives way, or for max_wait ──▶ worker

The table is the server's (docs/how-to/share_a_fleet.md, "Programs"); each session of the trace is a program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from vllm_router.replay.trace import TraceError

MODES = ("off", "observe", "on")


@dataclasses.dataclass(frozen=True)
class Programs:
    """How programs are admitted.

    Args:
        mode: `off`, `observe` (nothing waits) or `on`.
        members: As the core takes them: `fill=0.9 max_wait_ms=300000`; what is left out has its default.
    """

    mode: str = "on"
    members: str = ""

    def check_stages(self, staged: bool) -> None:
        """A TraceError in front of prefill and decode workers."""
        if staged and self.mode != "off":
            raise TraceError(
                "programs is given for a fleet of prefill and decode workers, which have no programs yet; "
                "leave it out"
            )

    def as_core(self) -> dict[str, Any]:
        """As the C++ core takes it."""
        return {"programs": f"{self.mode} {self.members}".strip()}
