"""LabelSelector: the labels that an object must have, as the API server selects; what several have in common.

    prefill = LabelSelector.parse(["app=vllm", "role=prefill"])
    decode = LabelSelector.parse(["app=vllm", "role=decode"])
    prefill.matches({"app": "vllm", "role": "prefill"})       True
    covering([prefill, decode]).terms                         ["app in (vllm)", "role in (decode,prefill)"]

A request to the API server can name one selector only, whose terms must all match. So objects that match one
of several are listed by a selector that covers them, and each is matched here: a change of labels is then one
event, and at no moment does an object seem to match two.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import reduce

from vllm_router._messages import show

__all__ = ["LabelSelector", "covering"]

_TERM = re.compile(
    r"(?P<absent>!)?\s*(?P<key>[-A-Za-z0-9_./]+)"
    r"(?:\s*(?P<equal>==?|!=)\s*(?P<value>[-A-Za-z0-9_.]*)"
    r"|\s+(?P<within>in|notin)\s*\((?P<values>[-A-Za-z0-9_.,\s]*)\))?"
)


@dataclasses.dataclass(frozen=True)
class _Values:
    """The values that a label may have; `None` stands for its absence."""

    listed: frozenset[str]
    others: bool  # False: those that are listed; True: all others
    absent: bool

    def allows(self, value: str | None) -> bool:
        return self.absent if value is None else (value in self.listed) != self.others

    def __invert__(self) -> _Values:
        return _Values(self.listed, not self.others, not self.absent)

    def __and__(self, other: _Values) -> _Values:
        if self.others and other.others:
            listed = self.listed | other.listed
        elif self.others or other.others:
            some, excluded = (other, self) if self.others else (self, other)
            listed = some.listed - excluded.listed
        else:
            listed = self.listed & other.listed
        return _Values(listed, self.others and other.others, self.absent and other.absent)

    def __or__(self, other: _Values) -> _Values:
        return ~(~self & ~other)

    def terms(self, key: str) -> list[str]:
        """Terms that match at least these: no term can say "one of these values, or absent"."""
        values = ",".join(sorted(self.listed))
        if self.others:
            there = [] if self.absent else [key]
            return [*there, f"{key} notin ({values})"] if self.listed else there
        if not self.absent:
            return [f"{key} in ({values})"]
        return [] if self.listed else [f"!{key}"]


_NONE = _Values(frozenset(), others=False, absent=False)


@dataclasses.dataclass(frozen=True)
class LabelSelector:
    """Terms, all of which must match."""

    of: Mapping[str, _Values]

    @classmethod
    def parse(cls, terms: Iterable[str]) -> LabelSelector:
        """From terms as kubectl takes them, each by itself.

        Raises:
            ValueError: what is no term, or terms that nothing can match.
        """
        of: dict[str, _Values] = {}
        for term in terms:
            match = _TERM.fullmatch(term.strip())
            if match is None or (match["absent"] and (match["equal"] or match["within"])):
                raise ValueError(f"{show(term)} is no term; write app=vllm, 'tier in (a,b)' or '!old'")
            values = _values_of(match)
            key = match["key"]
            of[key] = of[key] & values if key in of else values
            if of[key] == _NONE:
                raise ValueError(
                    f"{show(term)} contradicts another term of {key}, so nothing has such labels"
                )
        return cls(of)

    def matches(self, labels: Mapping[str, object]) -> bool:
        """Whether an object with these labels is selected."""
        for key, values in self.of.items():
            value = labels.get(key)
            if not values.allows(None if value is None else str(value)):
                return False
        return True

    @property
    def terms(self) -> list[str]:
        """Terms that match at least what this selector does; exactly that, if it was parsed."""
        return [term for key, values in sorted(self.of.items()) for term in values.terms(key)]


def covering(selectors: Iterable[LabelSelector]) -> LabelSelector:
    """Matches what at least one of them matches, and as little else as terms can say."""

    def either(one: LabelSelector, other: LabelSelector) -> LabelSelector:
        return LabelSelector({key: one.of[key] | other.of[key] for key in one.of if key in other.of})

    return reduce(either, selectors)


def _values_of(match: re.Match[str]) -> _Values:
    if match["absent"]:
        return _Values(frozenset(), others=False, absent=True)
    if match["within"]:
        listed = frozenset(value.strip() for value in match["values"].split(","))
        others = match["within"] == "notin"
    elif match["equal"]:
        listed = frozenset((match["value"],))
        others = match["equal"] == "!="
    else:
        return _Values(frozenset(), others=True, absent=False)
    return _Values(listed, others, absent=others)
