"""Trace: recorded or generated traffic as a few numpy arrays, and what can be known of it before any replay.

    request i:  arrival_s[i]  input_tokens[i]  output_tokens[i]  session_ids[i]
                its prompt's blocks   block_ids[block_offsets[i] : block_offsets[i + 1]]
                its answer's blocks   output_block_ids[output_offsets[i] : output_offsets[i + 1]]
    of a closed loop:             it arrives pause_s[i] after the last of the requests
                                  after_rows[after_offsets[i] : after_offsets[i + 1]] ended
    of a shared fleet:            priority_classes[i] as in CLASSES, tenants[i] as in tenant_names

A block id names `block_size` tokens *and everything before them*, so equal ids are equal prefixes. The last
id of a prompt may stand for a block that is not full. Blocks of answers matter where a later prompt continues
them: a chat's next turn. A trace without them makes every answer unique.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The highest first, as the core numbers them.
CLASSES = ("interactive", "default", "batch")
DEFAULT_CLASS = CLASSES.index("default")
NO_TENANT = "anonymous"

# vLLM computes the last tokens of a prompt even when all of it is cached.
ALWAYS_COMPUTED_TOKENS = 16


class TraceError(ValueError):
    """A trace cannot be used. The message is one sentence for a person."""


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival. Arrays are never changed in place; the methods return new traces."""

    name: str
    block_size: int
    arrival_s: NDArray[np.float64]
    input_tokens: NDArray[np.uint32]
    output_tokens: NDArray[np.uint32]
    block_ids: NDArray[np.uint64]
    block_offsets: NDArray[np.int64]
    session_ids: NDArray[np.uint64] | None = None
    output_block_ids: NDArray[np.uint64] | None = None
    output_offsets: NDArray[np.int64] | None = None
    # Of a closed loop (sessions.py): who waits for whom. One that waits for none arrives at its time.
    after_rows: NDArray[np.int64] | None = None
    after_offsets: NDArray[np.int64] | None = None
    pause_s: NDArray[np.float64] | None = None
    # Of a shared fleet (admission.py): the place in CLASSES, and that in tenant_names.
    priority_classes: NDArray[np.uint8] | None = None
    tenants: NDArray[np.uint32] | None = None
    tenant_names: Sequence[str] = ()
    skipped: int = 0  # lines of the file that could not be used

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __repr__(self) -> str:
        return f"<Trace {self.name}, {len(self):,} requests over {self.span_s:,.0f} s>"

    def blocks(self, request: int) -> NDArray[np.uint64]:
        """The block ids of one prompt."""
        return self.block_ids[self.block_offsets[request] : self.block_offsets[request + 1]]

    def output_blocks(self, request: int) -> NDArray[np.uint64]:
        """The block ids of one answer; empty where the trace has none."""
        if self.output_block_ids is None or self.output_offsets is None:
            return np.empty(0, np.uint64)
        return self.output_block_ids[self.output_offsets[request] : self.output_offsets[request + 1]]

    @property
    def is_closed_loop(self) -> bool:
        """Whether requests wait for the responses of others, so that times before a replay are nominal."""
        return self.after_rows is not None

    # What can be known before any replay.

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @property
    def rate(self) -> float:
        """Requests per second, as recorded."""
        return len(self) / self.span_s if self.span_s > 0 else float(len(self))

    @functools.cached_property
    def ideal_hit_share(self) -> float:
        """Share of the prompt tokens that one cache without limits would have served.

        A prompt hits up to its first block that no prompt before it had, and its last 16 tokens never.
        """
        starts = self.block_offsets[:-1]
        counts = np.diff(self.block_offsets)
        _, first_index = np.unique(self.block_ids, return_index=True)
        new = np.zeros(len(self.block_ids) + 1, bool)
        new[first_index] = True
        new[-1] = True
        # The next position, here or later, where a block is seen for the first time.
        places = np.where(new, np.arange(len(new)), len(new))
        next_new = np.minimum.accumulate(places[::-1])[::-1]
        matched = np.minimum(next_new[starts] - starts, counts)
        inputs = self.input_tokens.astype(np.int64)
        hits = np.clip(np.minimum(matched * self.block_size, inputs - ALWAYS_COMPUTED_TOKENS), 0, None)
        return float(hits.sum() / max(1, inputs.sum()))

    @functools.cached_property
    def working_set_tokens(self) -> int:
        """W: the size in tokens of one LRU cache that serves 90 % of all reuse of blocks, in arrival order.

        A cache serves a reuse when it holds as many blocks as differ between the two uses, the block itself
        included; W is the 90th percentile of that number. A trace without any reuse has 1,000 blocks.
        """
        distances = reuse_distances(self.block_ids)
        if len(distances) == 0:
            return 1000 * self.block_size
        blocks = int(np.sort(distances)[int(0.9 * (len(distances) - 1))])
        return max(1, blocks) * self.block_size

    def prepare(self) -> None:
        """Find out now what its stretched copies share, instead of once for each."""
        _ = self.ideal_hit_share, self.working_set_tokens, self._core_arrays

    # Other traffic made of this one.

    def at_rate(self, rate: float) -> Trace:
        """The same requests in the same order, with all times stretched so that `rate` a second arrive."""
        if not rate > 0:
            raise TraceError(f"rate is {rate:g} requests a second; it must be above 0")
        return self.faster(rate / self.rate)

    def faster(self, factor: float) -> Trace:
        """The same requests with all times and pauses divided by `factor`, the first at 0."""
        if not 0 < factor < float("inf"):
            raise TraceError(f"the trace cannot be replayed {factor:g} times as fast; give a number above 0")
        pause_s = None if self.pause_s is None else self.pause_s / factor
        return self._at((self.arrival_s - self.arrival_s[0]) / factor, pause_s)

    def poisson(self, rate: float, seed: int) -> Trace:
        """The same requests in the same order, arriving at random: gaps are exponential, `rate` a second."""
        if not rate > 0:
            raise TraceError(f"rate is {rate:g} requests a second; it must be above 0")
        if self.is_closed_loop:
            raise TraceError(f"{self.name} is a closed loop, whose requests cannot arrive at random")
        gaps = np.random.default_rng([seed, 0xA11]).exponential(1 / rate, len(self))
        gaps[0] = 0
        return self._at(np.cumsum(gaps))

    def _at(self, arrival_s: NDArray[np.float64], pause_s: NDArray[np.float64] | None = None) -> Trace:
        other = dataclasses.replace(self, arrival_s=arrival_s, pause_s=pause_s)
        # The order is the same, so what is known of it holds for the other, too: a bisection asks often.
        for name in ("ideal_hit_share", "working_set_tokens", "_core_arrays"):
            if name in vars(self):
                vars(other)[name] = vars(self)[name]
        return other

    def head(self, requests: int) -> Trace:
        """The first requests only."""
        if requests < 1:
            raise TraceError(f"limit is {requests}; at least 1 request is needed")
        if requests >= len(self):
            return self
        return self.take(np.arange(requests))

    def take(self, order: NDArray[Any]) -> Trace:
        """The requests with these numbers, in this order."""
        ids, offsets = _take_ragged(self.block_ids, self.block_offsets, order)
        changes: dict[str, Any] = {
            "arrival_s": self.arrival_s[order],
            "input_tokens": self.input_tokens[order],
            "output_tokens": self.output_tokens[order],
            "block_ids": ids,
            "block_offsets": offsets,
        }
        if self.session_ids is not None:
            changes["session_ids"] = self.session_ids[order]
        if self.priority_classes is not None:
            changes["priority_classes"] = self.priority_classes[order]
        if self.tenants is not None:
            changes["tenants"] = self.tenants[order]
        if self.output_block_ids is not None and self.output_offsets is not None:
            answer_ids, answer_offsets = _take_ragged(self.output_block_ids, self.output_offsets, order)
            changes |= {"output_block_ids": answer_ids, "output_offsets": answer_offsets}
        if self.after_rows is not None and self.after_offsets is not None and self.pause_s is not None:
            rows, after_offsets = _take_ragged(self.after_rows, self.after_offsets, order)
            place = np.full(len(self), -1, np.int64)
            place[order] = np.arange(len(order))
            rows = place[rows]  # those left out are not waited for
            left = np.concatenate(([0], np.cumsum(rows >= 0)))
            changes |= {
                "after_rows": rows[rows >= 0],
                "after_offsets": left[after_offsets],
                "pause_s": self.pause_s[order],
            }
        return dataclasses.replace(self, **changes)

    def as_core(self) -> dict[str, Any]:
        """As the C++ core takes it."""
        times = np.ascontiguousarray(self.arrival_s - self.arrival_s[0], np.float64)
        arrays = {"arrival_s": times, **self._core_arrays}
        if self.pause_s is not None:
            arrays["pause_s"] = np.ascontiguousarray(self.pause_s, np.float64)
        return arrays

    @functools.cached_property
    def _core_arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {
            "input_tokens": np.ascontiguousarray(self.input_tokens, np.uint32),
            "output_tokens": np.ascontiguousarray(self.output_tokens, np.uint32),
            "block_ids": _named(self.block_ids),
            "block_offsets": np.ascontiguousarray(self.block_offsets, np.int64),
            "block_size": self.block_size,
        }
        if self.session_ids is not None:
            arrays["session_ids"] = np.ascontiguousarray(self.session_ids, np.uint64)
        if self.priority_classes is not None:
            arrays["priority_classes"] = np.ascontiguousarray(self.priority_classes, np.uint8)
        if self.tenants is not None:
            arrays["tenants"] = np.ascontiguousarray(self.tenants, np.uint32)
        if self.output_block_ids is not None and self.output_offsets is not None:
            arrays["output_block_ids"] = _named(self.output_block_ids)
            arrays["output_block_offsets"] = np.ascontiguousarray(self.output_offsets, np.int64)
        if self.after_rows is not None and self.after_offsets is not None:
            arrays["after_rows"] = np.ascontiguousarray(self.after_rows, np.int64)
            arrays["after_offsets"] = np.ascontiguousarray(self.after_offsets, np.int64)
        return arrays


def _named(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ids as the core takes them: 0 is a block without a name there."""
    return np.ascontiguousarray(np.where(ids == 0, np.uint64(0xF1A5_0000_0000_0000), ids), np.uint64)


def _take_ragged(
    ids: NDArray[Any], offsets: NDArray[np.int64], order: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    counts = np.diff(offsets)[order]
    taken = np.zeros(len(order) + 1, np.int64)
    np.cumsum(counts, out=taken[1:])
    # Position within the new array, moved to where its request starts in the old one.
    index = np.arange(taken[-1]) + np.repeat(offsets[:-1][order] - taken[:-1], counts)
    return ids[index], taken


def reuse_distances(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For every use of a block but its first: how many blocks were used since its last use, itself included.

    With p(i) the position of the last use before i (-1 if none), a position j between p(i) and i is the first
    of its block there exactly if p(j) <= p(i). All j up to p(i) have p(j) < p(i) too, so the number is
    #{j < i: p(j) <= p(i)} - p(i), counted by merging as merge sort does: n log n, without a loop over uses.
    """
    count = len(ids)
    if count == 0:
        return np.empty(0, np.int64)
    by_id = np.lexsort((np.arange(count), ids))
    previous = np.full(count, -1, np.int64)
    same = ids[by_id][1:] == ids[by_id][:-1]
    previous[by_id[1:][same]] = by_id[:-1][same]
    below = _earlier_not_above(previous)
    reused = previous >= 0
    return below[reused] - previous[reused]


def _earlier_not_above(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each position the number of earlier positions whose value is not above its own."""
    count = len(values)
    result = np.zeros(count, np.int64)
    order = np.argsort(values, kind="stable")  # ties: the earlier first, so that it counts
    half = 1
    while half < count:
        pair = order // (2 * half)
        grouped = order[np.argsort(pair, kind="stable")]  # by pair of runs, in each by value
        left = (grouped // half) % 2 == 0
        lefts = np.cumsum(left)
        starts = np.searchsorted(grouped // (2 * half), np.arange((count - 1) // (2 * half) + 1))
        before = np.concatenate(([0], lefts))[starts][grouped // (2 * half)]
        right = ~left
        result[grouped[right]] += (lefts - before)[right]
        half *= 2
    return result
