"""Kinds of settings about Kubernetes: label selectors, and ports and names of its objects.

LabelSelector().check(["app=vllm"])                {"app": "vllm"}
LabelSelector().check(["app=vllm", "!old"])        ["app=vllm", "!old"]
OneOrMore("PORT", each=pod_port, …).check("8000")  8000
"""

from __future__ import annotations

# ruff: noqa: D102, since Kind says what its methods mean
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm_router.settings.kinds import Raw, Text, Unfit

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_VALUE = rf"(?:{_NAME})?"
_EQUAL = re.compile(rf"({_KEY})\s*==?\s*({_VALUE})")
_TERM = re.compile(
    rf"!?\s*{_KEY}|{_KEY}\s*(?:==?|!=)\s*{_VALUE}|"
    rf"{_KEY}\s+(?:in|notin)\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\)"
)


@dataclasses.dataclass(frozen=True)
class LabelSelector(Raw):
    """Labels of objects: a mapping, as vllm-project/router has it, or terms as kubectl takes them.

    Terms that only name values become the mapping that says the same.
    """

    metavar: str = "TERM"
    nargs: str | int | None = "*"

    @property
    def limits(self) -> str:
        return "labels such as app=vllm, 'tier in (a,b)' or '!old'"

    def parse(self, tokens: Sequence[str]) -> list[Any]:
        return self._terms(tokens)

    def from_config(self, value: object) -> object:
        return [value] if isinstance(value, str) else value

    def check(self, value: object) -> Any:
        if isinstance(value, Mapping):
            for key, text in value.items():
                word = f"{key}={text}"
                if not (isinstance(key, str) and isinstance(text, str) and _EQUAL.fullmatch(word)):
                    raise Unfit(self.limits, word, "is none of these")
            return dict(value)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise Unfit(self.limits)
        terms = self._terms(value)
        matches = [_EQUAL.fullmatch(term) for term in terms]
        pairs = {match[1]: match[2] for match in matches if match}
        return pairs if len(pairs) == len(terms) else terms

    def _terms(self, words: Sequence[object]) -> list[str]:
        terms: list[str] = []
        for word in words:
            if not isinstance(word, str):
                raise Unfit(self.limits)
            for term in re.split(r",(?![^(]*\))", word):  # not those between parentheses
                if not _TERM.fullmatch(term.strip()):
                    raise Unfit(self.limits, term.strip(), "is none of these")
                terms.append(term.strip())
        return list(dict.fromkeys(terms))


@dataclasses.dataclass(frozen=True)
class OneOrMore(Raw):
    """A value, or a list of several: a list of one is that one, as vllm-project/router has it."""

    metavar: str = "NAME"
    each: Callable[[object], Any] = str  # canonical form of one; raises Unfit
    what: str = "texts"

    @property
    def limits(self) -> str:
        return self.what

    def parse(self, tokens: Sequence[str]) -> list[Any]:
        words = [word.strip() for token in tokens for word in token.split(",")]
        return self._all([word for word in words if word])

    def from_config(self, value: object) -> object:
        return self.parse(value.split()) if isinstance(value, str) else value

    def check(self, value: object) -> Any:
        values = self._all([value] if isinstance(value, (str, int)) else value)
        return values[0] if len(values) == 1 else values

    def _all(self, values: object) -> list[Any]:
        if not isinstance(values, Sequence) or not values:
            raise Unfit(self.limits)
        found = []
        for value in values:
            try:
                found.append(self.each(value))
            except Unfit:
                raise Unfit(self.limits, str(value)) from None
        return list(dict.fromkeys(found))


def pod_port(value: object) -> int | str:
    """A port of a pod: a number, or the name of a container port."""
    if isinstance(value, str):
        if not re.fullmatch("[0-9]{1,5}", value):
            if re.fullmatch("(?=.*[a-z])[a-z0-9](?:[-a-z0-9]{0,13}[a-z0-9])?", value):
                return value
            raise Unfit
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise Unfit
    return value


def object_name(value: object) -> str:
    """A name of a namespace or a Service."""
    if not isinstance(value, str) or not re.fullmatch("[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", value):
        raise Unfit
    return value


@dataclasses.dataclass(frozen=True)
class ObjectName(Text):
    """The name of a namespace or a Service."""

    metavar: str = "NAME"

    @property
    def limits(self) -> str:
        return "a name of Kubernetes: 1 to 63 of a-z, 0-9 and -, the first and the last no -"

    def check(self, value: object) -> str:
        return object_name(value)


@dataclasses.dataclass(frozen=True)
class AnnotationName(Text):
    """The name of an annotation."""

    metavar: str = "NAME"

    @property
    def limits(self) -> str:
        return "a name of an annotation, such as vllm.ai/bootstrap-port"

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(_KEY, value):
            raise Unfit(self.limits)
        return value
