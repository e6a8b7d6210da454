"""PromQL, as far as labels go: which series an expression has, if each metric had some.

series = {"up": [{"job": "a"}], "load": [{"job": "a", "worker": "w"}]}
evaluate('sum by (job) (rate(load{worker="w"}[5m])) / up', series)      [{"job": "a"}]
evaluate("load / up", series)     raises ValueError: nothing matches

There are no values: a comparison keeps what it compares, `unless` its left side. A matcher of a value that
no series has makes one with it, since it may come later; the caller checks words. What can never have a
result is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Labels = dict[str, str]
Vector = list[Labels] | None  # None: a scalar

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?(?![0-9a-z.:]))|(?P<duration>[0-9]+(?:ms|[smhdwy]))"""
    r"""|(?P<string>"(?:[^"\\]|\\.)*"|'[^']*')|(?P<name>[A-Za-z_:$][\w:]*)|(?P<sign>==|!=|<=|>=|=~|!~|[-+*/%^<>=(){},\[\]:]))"""
)
_LEVELS = (
    ("or",),
    ("and", "unless"),
    ("==", "!=", "<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/", "%"),
    ("^",),
)
_AGGREGATIONS = {"sum", "avg", "min", "max", "count", "stddev", "group", "topk", "bottomk", "quantile"}
_OF_SCALARS = {
    "time": None,
    "vector": [{}],
    "absent": [{}],
    "absent_over_time": [{}],
    "scalar": None,
    "pi": None,
}


def evaluate(text: str, series: dict[str, list[Labels]]) -> Vector:
    """The labels of the result, without names; raises ValueError if there is none, or it is no PromQL."""
    parser = _Parser(text, series)
    result = parser.binary(0)
    parser.expect("")
    if result == []:
        raise ValueError("it never has a result")
    return result


class _Parser:
    def __init__(self, text: str, series: dict[str, list[Labels]]) -> None:
        self.series = series
        self.tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"no PromQL at {text[at:]!r}")
            self.tokens.append(match[0].strip())
            at = match.end()
        self.tokens.append("")

    def next(self) -> str:
        return self.tokens.pop(0)

    def take(self, *words: str) -> str | None:
        return self.next() if self.tokens[0] in words and self.tokens[0] else None

    def expect(self, word: str) -> None:
        if self.tokens[0] != word:
            raise ValueError(f"{word or 'the end'} expected at {' '.join(self.tokens)!r}")
        self.tokens.pop(0)

    def binary(self, level: int) -> Vector:
        if level == len(_LEVELS):
            self.take("-", "+")
            return self.postfix()
        left = self.binary(level + 1)
        while operator := self.take(*_LEVELS[level]):
            self.take("bool")
            matching = self.take("on", "ignoring")
            names = self.names() if matching else []
            group = self.take("group_left", "group_right")
            more = self.names() if group and self.tokens[0] == "(" else []
            right = self.binary(level + 1)
            left = _combined(operator, left, right, _keys(matching, names), group, more)
        return left

    def postfix(self) -> Vector:
        result = self.primary()
        while True:
            if self.take("["):
                while not self.take("]"):
                    self.next()
            elif self.take("offset"):
                self.take("-")
                self.next()
            else:
                return result

    def primary(self) -> Vector:
        word = self.next()
        if word == "(":
            result = self.binary(0)
            self.expect(")")
            return result
        if re.match(r"[0-9.\"']", word):
            return None
        if word in _AGGREGATIONS and self.tokens[0] in ("(", "by", "without"):
            return self.aggregation(word)
        if self.tokens[0] == "(":
            return self.function(word)
        return self.selector(word)

    def aggregation(self, word: str) -> Vector:
        how = self.take("by", "without")
        names = self.names() if how else []
        *_, vector = self.arguments()
        if not how and (how := self.take("by", "without")):
            names = self.names()
        if vector is None:
            raise ValueError(f"{word} of a number")
        if how == "by":
            for name in names:
                if not all(name in labels for labels in vector):
                    raise ValueError(f"no label {name} in what {word} takes")
        if word in ("topk", "bottomk"):
            return vector
        return _unique(vector, _keys("on" if how != "without" else "ignoring", names))

    def function(self, word: str) -> Vector:
        arguments = self.arguments()
        if word in _OF_SCALARS:
            return _OF_SCALARS[word]
        vector = next((one for one in arguments if one is not None), None)
        if word == "histogram_quantile":
            if vector is None or not all("le" in labels for labels in vector):
                raise ValueError("no label le in what histogram_quantile takes")
            return _unique(vector, _keys("ignoring", ["le"]))
        return vector

    def arguments(self) -> list[Vector]:
        self.expect("(")
        found: list[Vector] = []
        while not self.take(")"):
            found.append(self.binary(0))
            self.take(",")
        return found

    def names(self) -> list[str]:
        self.expect("(")
        found = []
        while not self.take(")"):
            found.append(self.next())
            self.take(",")
        return found

    def selector(self, name: str) -> Vector:
        if name not in self.series:
            raise ValueError(f"no series {name}")
        vector = [dict(labels) for labels in self.series[name]]
        if self.take("{"):
            while not self.take("}"):
                label, operator, value = self.next(), self.next(), self.next()[1:-1]
                self.take(",")
                for labels in vector:
                    if label not in labels:
                        raise ValueError(f"{name} has no label {label}")
                    if operator in ("=", "=~") and not value.startswith("$"):
                        fits = (
                            re.fullmatch(value, labels[label]) if operator == "=~" else value == labels[label]
                        )
                        labels[label] = labels[label] if fits else value.split("|")[0]
        return _unique(vector, lambda labels: labels)


def _keys(matching: str | None, names: list[str]) -> Callable[[Labels], Labels]:
    if matching == "on":
        return lambda labels: {name: labels[name] for name in names if name in labels}
    return lambda labels: {name: value for name, value in labels.items() if name not in names}


def _unique(vector: list[Labels], key: Callable[[Labels], Labels]) -> list[Labels]:
    found: list[Labels] = []
    for labels in map(key, vector):
        if labels not in found:
            found.append(labels)
    return found


def _combined(
    operator: str,
    left: Vector,
    right: Vector,
    key: Callable[[Labels], Labels],
    group: str | None,
    more: list[str],
) -> Vector:
    if left is None or right is None:
        return right if left is None else left
    if operator == "or":
        return left + [labels for labels in right if key(labels) not in map(key, left)]
    if operator in ("and", "unless"):
        matched = [labels for labels in left if key(labels) in map(key, right)]
        if not matched:
            raise ValueError(f"no series of both sides of {operator} have the same labels")
        return matched if operator == "and" else left
    if group == "group_right":
        left, right = right, left
    found = []
    for labels in left:
        partners = [other for other in right if key(other) == key(labels)]
        if len(partners) > 1 or (not group and sum(key(one) == key(labels) for one in left) > 1):
            raise ValueError(f"several series match one of the other side of {operator}")
        if partners:
            found.append({**(labels if group else key(labels)), **{name: partners[0][name] for name in more}})
    if not found:
        raise ValueError(f"no series of both sides of {operator} have the same labels")
    return found
