"""Explanation: what `Router.explain()` returns, the workers in the order in which a policy prefers them.

    router.explain(prompt="Hello")              # a table, in a notebook as HTML
    router.explain(prompt="Hello").workers[0]   # the worker that select() would choose

It holds numbers, URLs and keys, and nothing of the prompt.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from vllm_router import _html
from vllm_router._html import cell

__all__ = ["Explanation", "RankedWorker"]

_SHOWN_KEY = 80  # characters of a session key that a table shows


class DecisionText(str):
    """What `Ticket.explain()` returns: a text that a prompt or a notebook shows with its lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class RankedWorker(NamedTuple):
    """One worker as a decision sees it."""

    rank: int | None
    """1 is the worker that `select()` would choose; 2 the one with that worker excluded, and so on. None: not
    eligible."""
    url: str
    """As registered, with `@rank`."""
    reason: str | None
    """Why it has its rank; the names of `Ticket.reason`."""
    status: str
    """`eligible`, or why not: `unhealthy`, `draining`, `circuit_breaker`, `in_doubt`, `excluded`,
    `other_model` (it does not serve the request's), or `full` (`max_worker_requests`)."""
    matched: int | None
    """How much of the prompt it is thought to hold, in `Explanation.unit`s; None where the policy matches
    nothing."""
    cost: float | None
    """The cost that the policy compares, the lowest wins: of `auto` in tokens of prefill, of `kv_logit` and
    `kv_aware` in blocks; None for other policies."""
    limit: int | None
    """Open requests at which the policy passes it over, for `prefix_aware` and `consistent_hash` with
    `hash_load_factor`; None for others."""
    load: int
    """Open requests."""
    outstanding_tokens: int
    """`queued_prefill_tokens` and the output that open requests are expected to make."""
    queued_prefill_tokens: int
    """Prompt tokens of open requests before their first token."""
    context_tokens: int
    """Prompt tokens of open requests."""
    weight: float
    """Relative capacity."""
    waiting_requests: int
    """Open requests before their first token."""
    score: float | None
    """The score that `kv_overlap` compares, 0 to 1, the highest wins; None for other policies, and where no
    worker holds enough of the prompt."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A dry run of a decision: all workers with what they are compared by, and what was read of the request.

    `print()` shows a table, a notebook the same as HTML.
    """

    policy: str
    """Canonical name of the policy."""
    workers: tuple[RankedWorker, ...]
    """All workers of the fleet: those that may be chosen by rank, then the others in fleet order."""
    unit: str
    """What `matched` and `total` count: `none`, `bytes`, `tokens` or `blocks`."""
    matched: int
    """As `Ticket.matched` would be: how much of the prompt the first worker is thought to hold."""
    total: int
    """Length of the prompt in `unit`s."""
    session_key: str | None
    """What hash policies hash: `header:x-session-id:…`, `session:…`, `user:…`, or, for a request that names
    no session, a digest, `opening:…` or `request_hash:…`; None for a request without any content."""
    prefix_digest: str | None
    """What `prefix_aware` hashes: SHA-256 of the prompt's prefix, 64 hex digits; None without one."""
    text_bytes: int | None
    """Length of the routing text; None where the prompt is token ids or missing."""
    token_ids: int | None
    """Number of token ids; None where the prompt is a text or missing."""
    blocks: int
    """Complete blocks of the prompt, of `block_size` tokens each (16 with `auto`), or four bytes for each of
    these tokens."""
    prompt_tokens: int
    """Estimated length of the prompt, which loads are made of."""
    reads: tuple[str, ...]
    """What the policy goes by: `session_key`, `prefix_digest`, `routing_text`, `blocks`, `prompt_tokens`."""

    @property
    def worker_url(self) -> str | None:
        """The worker that `select()` would choose; None when it would raise `NoWorkersError`."""
        return self.workers[0].url if self.workers and self.workers[0].rank == 1 else None

    @property
    def reason(self) -> str | None:
        """As `Ticket.reason` would be; None without a worker."""
        return self.workers[0].reason if self.worker_url is not None else None

    def __repr__(self) -> str:
        rows = [self._head(), *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        # Texts to the left, numbers to the right.
        left = {i for i, name in enumerate(rows[0]) if name in ("worker", "reason", "status")}
        lines = [
            "   ".join(text.ljust(width) if i in left else text.rjust(width) for i, (text, width) in cells)
            for cells in (enumerate(zip(row, widths, strict=True)) for row in rows)
        ]
        facts = [f"{name}: {value}" for name, value in self._facts()]
        return "\n".join([self._title(), "", *(line.rstrip() for line in lines), "", *facts])

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        workers = _html.table(self._head(), self._rows())
        return _html.titled(self._title(), workers, _html.table((), self._facts()))

    def _title(self) -> str:
        if self.worker_url is None:
            return f"{self.policy}: no worker can take the request"
        return f"{self.policy} would choose {self.worker_url} ({self.reason})"

    def _columns(self) -> list[tuple[str, str]]:
        """Heading and field, without those that no worker has."""
        columns = [
            ("rank", "rank"),
            ("worker", "url"),
            ("reason", "reason"),
            ("status", "status"),
            (f"matched {self.unit}", "matched"),
            ("cost", "cost"),
            ("score", "score"),
            ("limit", "limit"),
            ("load", "load"),
            ("outstanding tokens", "outstanding_tokens"),
            ("weight", "weight"),
        ]
        optional = ("matched", "cost", "score", "limit")
        return [
            (head, field)
            for head, field in columns
            if field not in optional or any(getattr(worker, field) is not None for worker in self.workers)
        ]

    def _head(self) -> list[str]:
        return [head for head, _ in self._columns()]

    def _rows(self) -> list[list[str]]:
        return [[cell(getattr(worker, field)) for _, field in self._columns()] for worker in self.workers]

    def _facts(self) -> list[tuple[str, str]]:
        """What was read of the request; an asterisk marks what the policy goes by."""

        def name(text: str, part: str) -> str:
            return text + (" *" if part in self.reads else "")

        key = self.session_key
        if key is not None and len(key) > _SHOWN_KEY:
            key = f"{key[:_SHOWN_KEY]}… ({len(key)} characters)"
        prompt = "none"
        if self.text_bytes is not None:
            prompt = f"{self.text_bytes} bytes"
        elif self.token_ids is not None:
            prompt = f"{self.token_ids} token ids"
        return [
            (name("session key", "session_key"), cell(key)),
            (name("prefix digest", "prefix_digest"), cell(self.prefix_digest)),
            (name("routing text", "routing_text"), prompt),
            (name("blocks", "blocks"), str(self.blocks)),
            (name("prompt tokens", "prompt_tokens"), str(self.prompt_tokens)),
        ]
