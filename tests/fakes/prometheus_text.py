"""Prometheus' text format 0.0.4, read strictly: what a scraper would only grumble about is an error here.

page = parse(server.metrics_text())
page["vllm_router_in_flight"].value()
page["vllm_router_exchange_end_total"].total()
page["vllm_router_ttft_seconds"].histogram(route="/v1/completions", worker=url).count
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Labels = tuple[tuple[str, str], ...]


@dataclass
class Histogram:
    buckets: dict[float, int] = field(default_factory=dict)  # upper bound -> count up to there
    count: int = 0
    sum: float = 0.0


@dataclass
class Family:
    name: str
    kind: str
    help: str
    series: dict[Labels, float | Histogram] = field(default_factory=dict)

    def value(self, **labels: str) -> float:
        """The value of the series with exactly these labels; 0 when there is none."""
        value = self.series.get(_key(labels), 0.0)
        assert not isinstance(value, Histogram)
        return value

    def histogram(self, **labels: str) -> Histogram:
        value = self.series.get(_key(labels), Histogram())
        assert isinstance(value, Histogram)
        return value

    def total(self) -> float:
        return sum(value.count if isinstance(value, Histogram) else value for value in self.series.values())

    def label_names(self) -> set[tuple[str, ...]]:
        """The sets of label names that its series have; one, if all is well."""
        return {tuple(name for name, _ in labels) for labels in self.series}

    def values_of(self, label: str) -> set[str]:
        return {value for labels in self.series for name, value in labels if name == label}


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _labels(text: str) -> Labels:
    found = []
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, text
        found.append((match[1], re.sub(r"\\.", lambda escape: _ESCAPES[escape[0]], match[2])))
        at = match.end()
    assert len(dict(found)) == len(found), f"a label twice: {text}"
    return tuple(sorted(found))


def parse(page: str) -> dict[str, Family]:
    """Families by name."""
    assert page.endswith("\n")
    families: dict[str, Family] = {}
    family: Family | None = None
    for line in page[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({_NAME}) (.*)", line):
            assert match[1] not in families, f"{match[1]} comes twice"
            family = families[match[1]] = Family(match[1], "", match[2])
            continue
        assert family is not None
        if match := re.fullmatch(rf"# TYPE ({_NAME}) (counter|gauge|histogram)", line):
            assert match[1] == family.name
            assert family.kind == ""
            family.kind = match[2]
            continue
        match = re.fullmatch(rf"({_NAME})(?:\{{(.*)\}})? (\S+)", line)
        assert match, line
        _add(family, match[1], _labels(match[2] or ""), float(match[3]))
    for family in families.values():
        _check(family)
    return families


def _add(family: Family, name: str, labels: Labels, value: float) -> None:
    if family.kind != "histogram":
        assert name == family.name, f"{name} among {family.name}"
        assert labels not in family.series, f"{name}{labels} comes twice"
        family.series[labels] = value
        return
    bound = dict(labels).get("le")
    labels = tuple(label for label in labels if label[0] != "le")
    histogram = family.series.setdefault(labels, Histogram())
    assert isinstance(histogram, Histogram)
    if name == family.name + "_bucket":
        assert bound is not None
        assert float(bound) not in histogram.buckets, f"{name}{labels} has the bucket {bound} twice"
        histogram.buckets[float(bound)] = int(value)
    elif name == family.name + "_count":
        histogram.count = int(value)
    else:
        assert name == family.name + "_sum"
        histogram.sum = value


def _check(family: Family) -> None:
    assert family.kind, f"{family.name} has no type"
    assert len(family.label_names()) <= 1, f"{family.name}: series with different labels"
    assert family.name.endswith("_total") == (family.kind == "counter"), family.name
    for labels, value in family.series.items():
        if isinstance(value, Histogram):
            counts = list(value.buckets.values())
            assert list(value.buckets) == sorted(value.buckets)
            assert counts == sorted(counts)
            assert value.buckets[float("inf")] == value.count, (family.name, labels)
        elif family.kind == "counter":
            assert value >= 0


def never_fell(before: dict[str, Family], after: dict[str, Family]) -> None:
    """Counters and histograms of two scrapes, one after the other."""
    for name, family in before.items():
        for labels, value in family.series.items():
            later = after[name].series.get(labels)
            if isinstance(value, Histogram):
                assert isinstance(later, Histogram), (name, labels)
                pairs = [(value.count, later.count), (value.sum, later.sum)]
                for was, now in itertools.chain(
                    pairs, zip(value.buckets.values(), later.buckets.values(), strict=True)
                ):
                    assert was <= now, (name, labels)
            elif family.kind == "counter":
                assert isinstance(later, float), (name, labels)
                assert value <= later, (name, labels)
