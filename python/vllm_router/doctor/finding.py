"""What the doctor found, and its text.

print(as_text([Finding("limits", "open files", "warning", "1024 at most", "raise it to 65536")]))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from vllm_router._output import printable

Status = Literal["ok", "warning", "error"]


class Finding(NamedTuple):
    """One thing that was looked at; `remedy` is empty where nothing needs to change."""

    section: str
    name: str
    status: Status
    found: str
    remedy: str = ""


def worst(findings: Sequence[Finding]) -> Status:
    """The gravest status among them."""
    present = {finding.status for finding in findings}
    return "error" if "error" in present else "warning" if "warning" in present else "ok"


def as_text(findings: Sequence[Finding]) -> str:
    """Lines in columns, by section, with a sum at the end."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            lines += ["", printable(section)] if lines else [printable(section)]
        lines.append(f"  {finding.status:<7}  {finding.name:<{width}}  {printable(finding.found)}")
        if finding.remedy:
            lines.append(f"{'':{width + 13}}-> {printable(finding.remedy)}")
    count = {status: sum(finding.status == status for finding in findings) for status in ("warning", "error")}
    lines += ["", f"errors: {count['error']}, warnings: {count['warning']}"]
    return "\n".join(lines)
