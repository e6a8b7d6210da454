"""Tables for notebooks: what `_repr_html_` of results is made of. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_router.router import Batch

_SHOWN_ROWS = 20  # of a batch


def cell(value: object) -> str:
    """As tables show a value."""
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; without a heading if `head` is empty."""

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell(value))}</{tag}>" for value in cells) + "</tr>"

    heading = f"<thead>{line(head, 'th')}</thead>" if head else ""
    return f"<table>{heading}<tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"


def titled(title: str, *tables: str) -> str:
    """Tables under a line of text."""
    return f"<div><p>{escape(title)}</p>{''.join(tables)}</div>"


def batch(shown: Batch) -> str:
    """The first rows of a batch."""
    rows: list[tuple[object, ...]] = [
        (row, shown.worker_urls[worker], reason, matched, total, unit)
        for row, (worker, reason, matched, total, unit) in enumerate(
            zip(
                shown.workers[:_SHOWN_ROWS].tolist(),
                shown.reason[:_SHOWN_ROWS],
                shown.matched[:_SHOWN_ROWS].tolist(),
                shown.total[:_SHOWN_ROWS].tolist(),
                shown.unit[:_SHOWN_ROWS],
                strict=True,
            )
        )
    ]
    if len(shown) > _SHOWN_ROWS:
        rows.append(("…", f"{len(shown) - _SHOWN_ROWS} more rows", None, None, None, None))
    return titled(repr(shown)[1:-1], table(("row", "worker", "reason", "matched", "total", "unit"), rows))
