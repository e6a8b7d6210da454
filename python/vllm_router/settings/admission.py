"""The file of --admission-config: priority classes, as lines for cpp/admission/admission_settings.h.

    classes:                             class interactive queue_size=256 queue_timeout_ms=30000 gate=open
      - {name: interactive,         ->   class default queue_size=512 … gate=gated kv_ceiling=0.95 …
         queue_size: 256, …}             class batch queue_size=8192 … gate=idle_only kv_ceiling=0.5
    alias_classes: {nightly: batch}      alias batch nightly
    tenants: {search: {weight: 4,        tenant weight=4.0 concurrency=64 search
                       concurrency: 64}}
    engine_priority: {engine: vllm}      engine vllm client=keep interactive=-10 default=0 batch=10
    programs: {fill: 0.8}                programs fill=0.8         (of cpp/admission/program_settings.h)

Pure. A mistake names the file, the line, the member, its value, the limit and the remedy.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from vllm_router._messages import did_you_mean, show
from vllm_router._version import __version__
from vllm_router.settings.clients import CLASSES
from vllm_router.settings.kinds import Unfit
from vllm_router.settings.names import name_only
from vllm_router.settings.programs import MAX_ACTIVE, MAX_CAPACITY, MAX_FILL, PREFIX
from vllm_router.settings.response_cache import seconds_of
from vllm_router.settings.urls import model_name
from vllm_router.settings.yaml import composed_yaml

__all__ = ["admission_of_yaml"]

MAX_QUEUE = 65_536
MAX_SECS = 86_400
MAX_WEIGHT = 1_000
MAX_ALIASES = 256
MAX_TENANTS = 4_096
MAX_TENANT_CONCURRENCY = 1_000_000
MAX_TENANT_REQUESTS = 60_000_000  # per minute
MAX_TENANT_TOKENS = 100_000_000_000  # likewise
MAX_ENGINE_PRIORITY = 1_000_000

_WHAT = "file of priority classes"
_HOW = "write classes: [{name: interactive}, {name: default}, {name: batch}]"
_MEMBERS = ("name", "queue_size", "queue_timeout", "kv_ceiling", "idle_only", "age_after", "evict")
_SECTIONS = ("classes", "alias_classes", "order", "tenants", "engine_priority", "programs")
_LATER = ("trusted_addresses", "fairness")
_PROGRAM_MEMBERS = ("fill", "max_wait", "ttl", "forget", "capacity", "max_active_per_tenant")


# As in cpp/admission/tenant_name.h.
_TENANT = re.compile(r"[A-Za-z0-9._@/-]{1,64}")
_OTHERS = "other"
_TENANT_MEMBERS = ("weight", "concurrency", "requests_per_minute", "tokens_per_minute", "burst")
_TENANT_LATER = ("queue_size",)
_ALL_TENANTS = "default"  # those that are not named


_ENGINE_MEMBERS = ("engine", "values", "client")
_ENGINES = ("vllm", "sglang", "sglang-low-first")
_CLIENTS = ("keep", "clamp", "replace")
_ENGINE_VALUES = {"interactive": -10, "default": 0, "batch": 10}


@dataclasses.dataclass
class _Class:
    """What one class has; of a highest one without ceiling every worker has room."""

    name: str
    queue_size: int
    queue_timeout_ms: int
    kv_ceiling: float | None
    idle_only: bool = False
    age_after_ms: int = 0
    weight: float | None = None
    line: int = 0
    has_own_ceiling: bool = False
    evict: bool = False

    @property
    def gate(self) -> str:
        if self.idle_only:
            return "idle_only"
        return "open" if self.kv_ceiling is None else "gated"

    def as_line(self) -> str:
        """For the core."""
        words = [
            f"class {self.name} queue_size={self.queue_size} queue_timeout_ms={self.queue_timeout_ms}",
            f"gate={self.gate}",
        ]
        if self.kv_ceiling is not None:
            words.append(f"kv_ceiling={self.kv_ceiling!r}")
        words.append(f"age_after_ms={self.age_after_ms}")
        if self.weight is not None:
            words.append(f"weight={self.weight!r}")
        if self.evict:
            words.append("evict=true")
        return " ".join(words)


def _defaults() -> dict[str, _Class]:
    """Those of cpp/admission/admission_settings.cc."""
    return {
        "interactive": _Class("interactive", 256, 30_000, None),
        "default": _Class("default", 512, 60_000, 0.95, age_after_ms=30_000),
        "batch": _Class("batch", 8192, 600_000, 0.5, idle_only=True),
    }


@dataclasses.dataclass(frozen=True)
class _Tenant:
    """What one tenant has; 0 is no limit."""

    weight: float = 1.0
    concurrency: int = 0
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    burst_ms: int = 10_000

    def as_line(self, name: str) -> str:
        """For the core."""
        words = [f"tenant weight={self.weight!r}"]
        if self.concurrency:
            words.append(f"concurrency={self.concurrency}")
        if self.requests_per_minute:
            words.append(f"requests_per_minute={self.requests_per_minute}")
        if self.tokens_per_minute:
            words.append(f"tokens_per_minute={self.tokens_per_minute}")
        if self.requests_per_minute or self.tokens_per_minute:
            words.append(f"burst_ms={self.burst_ms}")
        return " ".join([*words, name])


class _Place(NamedTuple):
    """A value, where it stands, and what it is called."""

    source: str
    node: Any
    value: Any
    name: str

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    @property
    def where(self) -> str:
        return f"{self.source}, line {self.line}: {self.name}"

    def wrong(self, must: str) -> NoReturn:
        """Raises ValueError: its value is not what it must be."""
        raise ValueError(f"{self.where} is {show(self.value)}; it must be {must}")

    def member(self, key: str, node: Any, value: Any) -> _Place:
        return _Place(self.source, node, value, f"{self.name}.{key}" if self.name else key)

    def items(self) -> Iterator[_Place]:
        """Of a list."""
        for number, (node, value) in enumerate(zip(self.node.value, self.value, strict=True)):
            yield _Place(self.source, node, value, f"{self.name}[{number}]")

    def pairs(self) -> Iterator[tuple[str, _Place]]:
        """Of a mapping, whose names are texts and occur once."""
        lines: dict[str, int] = {}
        for key_node, node in self.node.value:
            key, line = key_node.value, int(key_node.start_mark.line) + 1
            if not isinstance(key, str) or key not in self.value:
                raise ValueError(
                    f"{self.source}, line {line}: {self.name or 'the file'} has a name that is no text; put "
                    "it in quotes"
                )
            if key in lines:
                raise ValueError(
                    f"{self.source}, line {line}: {name_only(key)} is in line {lines[key]} already; keep one "
                    "of them"
                )
            lines[key] = line
            yield key, self.member(key, node, self.value[key])


def admission_of_yaml(text: str, source: str) -> str:
    """The lines of a YAML text of priority classes.

    Args:
        text: A mapping with `classes`, and perhaps `alias_classes`, `order`, `tenants`, `engine_priority` and
            `programs`, which may stand alone.
        source: The file's name, for messages.

    Raises:
        ValueError: it is no YAML, or has something else in it. The message has the line, and no secret.
    """
    node, value = composed_yaml(text, source, _WHAT)
    if value is None:
        raise ValueError(f"{source} is empty; {_HOW} in it, or leave out --admission-config")
    root = _Place(source, node, value, "")
    if not isinstance(value, dict):
        raise ValueError(f"{source}, line {root.line}: this is {show(value)}, not a mapping; {_HOW}")
    sections = dict(root.pairs())
    for name, section in sections.items():
        if name in _LATER:
            raise ValueError(
                f"{section.where} is not implemented in vllm-router {__version__} yet; remove it"
            )
        if name not in _SECTIONS:
            hint = did_you_mean(name_only(name), _SECTIONS, f"; there are {', '.join(_SECTIONS)}")
            raise ValueError(
                f"{source}, line {section.line}: {show(name_only(name))} is not known here{hint}"
            )
    programs = _programs_of(sections.get("programs"))
    if list(sections) == ["programs"]:
        return "\n".join(programs)
    if "classes" not in sections:
        raise ValueError(f"{source}, line {root.line}: there are no classes; {_HOW}")
    classes = _classes_of(sections["classes"])
    _set_weights(sections.get("order"), classes)
    _check_ceilings(classes, source)
    _check_evictions(classes, source)
    aliases = _aliases_of(sections.get("alias_classes"))
    lines = [one.as_line() for one in classes.values()]
    lines += [f"alias {given} {alias}" for alias, given in sorted(aliases.items())]
    tenants = _tenants_of(sections.get("tenants"))
    lines += [one.as_line(tenant) for tenant, one in sorted(tenants.items())]
    lines += _engine_of(sections.get("engine_priority"))
    return "\n".join(lines + programs)


def _classes_of(place: _Place) -> dict[str, _Class]:
    """All three, in the order of rank; those that the file leaves out have their defaults."""
    if not isinstance(place.value, list) or not place.value:
        raise ValueError(f"{place.where} is {show(place.value)}; it must be a list of classes: {_HOW}")
    classes = _defaults()
    last: _Class | None = None
    for row in place.items():
        if not isinstance(row.value, dict):
            row.wrong("a mapping with name, such as {name: batch, queue_size: 8192}")
        one = _class_of(row, classes)
        if last is not None and CLASSES.index(one.name) <= CLASSES.index(last.name):
            raise ValueError(
                f"{row.where} is {one.name} behind {last.name} in line {last.line}; each class stands once, "
                f"in the order of rank: {', '.join(CLASSES)}"
            )
        last = one
    return classes


def _class_of(row: _Place, classes: dict[str, _Class]) -> _Class:
    members = dict(row.pairs())
    for name, member in members.items():
        if name not in _MEMBERS:
            hint = did_you_mean(name_only(name), _MEMBERS, f"; a class has {', '.join(_MEMBERS)}")
            raise ValueError(
                f"{row.source}, line {member.line}: {row.name}.{name_only(name)} is not known{hint}"
            )
    if "name" not in members:
        raise ValueError(f"{row.where} has no name; it is one of {', '.join(CLASSES)}")
    if members["name"].value not in CLASSES:
        members["name"].wrong(f"one of {', '.join(CLASSES)}")
    one = classes[members["name"].value]
    one.line = row.line
    given = {name: member for name, member in members.items() if member.value is not None}
    if "queue_size" in given:
        one.queue_size = _whole(given["queue_size"], 0, MAX_QUEUE)
    if "queue_timeout" in given:
        one.queue_timeout_ms = _milliseconds(given["queue_timeout"], zero=False)
    if "age_after" in given:
        one.age_after_ms = _milliseconds(given["age_after"], zero=True)
    if "idle_only" in given:
        one.idle_only = _switch(given["idle_only"])
    if "kv_ceiling" in given:
        one.kv_ceiling = _share(given["kv_ceiling"])
        one.has_own_ceiling = True
    elif one.idle_only and one.kv_ceiling is None:
        one.kv_ceiling = 0.5
    elif not one.idle_only and one.name == "batch":
        one.kv_ceiling = classes["default"].kv_ceiling or 0.95  # 0.5 is for one that fills what is idle
    if "evict" in given:
        one.evict = _switch(given["evict"])
        if one.evict and one.name == "interactive":
            raise ValueError(f"{given['evict'].where} is true, and it has no class above; remove it")
    if one.age_after_ms and (one.idle_only or one.name == "interactive") and "age_after" in given:
        why = (
            "it has no class above"
            if one.name == "interactive"
            else "an idle_only class waits for idle workers"
        )
        raise ValueError(
            f"{given['age_after'].where} is {show(given['age_after'].value)}, and {why}; remove it"
        )
    if one.idle_only:
        one.age_after_ms = 0
    return one


def _set_weights(place: _Place | None, classes: dict[str, _Class]) -> None:
    if place is None or place.value == "strict":
        return
    how = "strict, or {weighted: {interactive: 8, default: 3, batch: 1}}"
    if not isinstance(place.value, dict):
        place.wrong(how)
    sections = dict(place.pairs())
    if list(sections) != ["weighted"] or not isinstance(sections["weighted"].value, dict):
        raise ValueError(f"{place.where} is {show(place.value)}; it must be {how}")
    weights = dict(sections["weighted"].pairs())
    for name, weight in weights.items():
        if name not in CLASSES:
            raise ValueError(f"{weight.where} is no class; write a weight for each of {', '.join(CLASSES)}")
        classes[name].weight = _weight(weight)
    for name in CLASSES:
        if name not in weights:
            raise ValueError(f"{sections['weighted'].where} has no weight for {name}; give one to each class")


def _check_ceilings(classes: dict[str, _Class], source: str) -> None:
    """A worker with room for a class has room for each class above."""
    gates = ("open", "gated", "idle_only")
    order = [classes[name] for name in CLASSES]
    for above, one in itertools.pairwise(order):
        if above.kv_ceiling is not None and one.kv_ceiling is not None and not one.has_own_ceiling:
            one.kv_ceiling = min(above.kv_ceiling, one.kv_ceiling)
        where = f"{source}, line {one.line or above.line}"
        if gates.index(one.gate) < gates.index(above.gate):
            raise ValueError(
                f"{where}: {above.name} is idle_only and {one.name}, which is below it, is not; set "
                f"idle_only for {one.name}, too"
            )
        if above.kv_ceiling is not None and one.kv_ceiling is not None and one.kv_ceiling > above.kv_ceiling:
            raise ValueError(
                f"{where}: the kv_ceiling of {one.name} is {one.kv_ceiling:g} and that of {above.name}, "
                f"which is above it, {above.kv_ceiling:g}; a lower class has the same or a lower one"
            )


def _check_evictions(classes: dict[str, _Class], source: str) -> None:
    """Of two classes the lower one is evicted first."""
    for above, one in itertools.pairwise(classes[name] for name in CLASSES):
        if above.evict and not one.evict:
            raise ValueError(
                f"{source}, line {one.line or above.line}: {above.name} has evict and {one.name}, which is "
                f"below it, has not; set evict for {one.name}, too"
            )


def _aliases_of(place: _Place | None) -> dict[str, str]:
    if place is None or place.value is None:
        return {}
    if not isinstance(place.value, dict):
        place.wrong("a mapping of aliases to classes, such as {nightly: batch}")
    found = {}
    for alias, given in place.pairs():
        if given.value not in CLASSES:
            given.wrong(f"one of {', '.join(CLASSES)}")
        try:
            found[model_name(alias)] = given.value
        except Unfit:
            raise ValueError(f"{given.where} is no name of a model; name an alias of --model-alias") from None
    if len(found) > MAX_ALIASES:
        raise ValueError(f"{place.where} has {len(found)} aliases; it must have at most {MAX_ALIASES}")
    return found


def _tenants_of(place: _Place | None) -> dict[str, _Tenant]:
    """By name; what one leaves out is as in `default`."""
    if place is None or place.value is None:
        return {}
    if not isinstance(place.value, dict):
        place.wrong("a mapping of tenants, such as {search: {weight: 4}}")
    given = dict(place.pairs())
    if len(given) > MAX_TENANTS:
        raise ValueError(f"{place.where} has {len(given)} tenants; it must have at most {MAX_TENANTS}")
    others = _Tenant()
    if _ALL_TENANTS in given:
        others = _tenant_of(given[_ALL_TENANTS], others)
    found = {}
    for tenant, row in given.items():
        if _TENANT.fullmatch(tenant) is None or tenant == _OTHERS:
            raise ValueError(
                f"{row.where} is no name of a tenant; it has 1 to 64 letters, digits or . _ - @ /, and is "
                f"not {_OTHERS}"
            )
        found[tenant] = _tenant_of(row, others)
    return found


def _tenant_of(row: _Place, others: _Tenant) -> _Tenant:
    if not isinstance(row.value, dict):
        row.wrong("a mapping with weight or limits, such as {weight: 4, requests_per_minute: 600}")
    changes: dict[str, Any] = {}
    for name, member in row.pairs():
        if name in _TENANT_LATER:
            raise ValueError(f"{member.where} is not implemented in vllm-router {__version__} yet; remove it")
        if name not in _TENANT_MEMBERS:
            hint = did_you_mean(
                name_only(name), _TENANT_MEMBERS, f"; a tenant has {', '.join(_TENANT_MEMBERS)}"
            )
            raise ValueError(
                f"{member.source}, line {member.line}: {row.name}.{name_only(name)} is not known{hint}"
            )
        if name == "weight":
            changes["weight"] = _weight(member)
        elif name == "concurrency":
            changes["concurrency"] = _whole(member, 0, MAX_TENANT_CONCURRENCY)
        elif name == "requests_per_minute":
            changes["requests_per_minute"] = _whole(member, 0, MAX_TENANT_REQUESTS)
        elif name == "tokens_per_minute":
            changes["tokens_per_minute"] = _whole(member, 0, MAX_TENANT_TOKENS)
        else:
            changes["burst_ms"] = _milliseconds(member, zero=False)
    return dataclasses.replace(others, **changes)


def _engine_of(place: _Place | None) -> list[str]:
    """The line of the engine that is told of classes, if one is."""
    if place is None or place.value is None:
        return []
    if not isinstance(place.value, dict):
        place.wrong("a mapping with engine, such as {engine: vllm}")
    members = dict(place.pairs())
    for name, member in members.items():
        if name not in _ENGINE_MEMBERS:
            hint = did_you_mean(name_only(name), _ENGINE_MEMBERS, f"; there are {', '.join(_ENGINE_MEMBERS)}")
            raise ValueError(
                f"{member.source}, line {member.line}: {place.name}.{name_only(name)} is not known{hint}"
            )
    if "engine" not in members:
        raise ValueError(f"{place.where} has no engine; it is one of {', '.join(_ENGINES)}")
    words = [f"engine {_one_of(members['engine'], _ENGINES)}"]
    words.append(f"client={_one_of(members['client'], _CLIENTS) if 'client' in members else _CLIENTS[0]}")
    values = dict(_ENGINE_VALUES)
    given = members.get("values")
    if given is not None and not isinstance(given.value, dict):
        given.wrong("a mapping of classes to whole numbers, the lower first")
    for name, value in given.pairs() if given is not None else ():
        if name not in CLASSES:
            raise ValueError(f"{value.where} is no class; there are {', '.join(CLASSES)}")
        values[name] = _whole(value, -MAX_ENGINE_PRIORITY, MAX_ENGINE_PRIORITY)
    if not values["interactive"] <= values["default"] <= values["batch"]:
        shown = ", ".join(f"{name} {values[name]}" for name in CLASSES)
        raise ValueError(
            f"{(given or place).where} has {shown}; a higher class has the same or a lower number, also for "
            "SGLang, whose sign the router changes"
        )
    return [" ".join([*words, *(f"{name}={values[name]}" for name in CLASSES)])]


def _programs_of(place: _Place | None) -> list[str]:
    """The line of programs, if the file has something to say of them."""
    if place is None or place.value is None:
        return []
    if not isinstance(place.value, dict):
        place.wrong("a mapping such as {fill: 0.9, max_wait: 300s}")
    words = []
    for name, member in place.pairs():
        if name == "fill":
            value = member.value
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_FILL:
                member.wrong(f"a share of the KV cache, above 0 and up to {MAX_FILL}")
            words.append(f"fill={float(value)!r}")
        elif name == "ttl":
            words.append(f"ttl_ms={0 if member.value == 'auto' else _milliseconds(member, zero=False)}")
        elif name in ("max_wait", "forget"):
            words.append(f"{name}_ms={_milliseconds(member, zero=False)}")
        elif name == "capacity":
            words.append(f"capacity={_whole(member, 0, MAX_CAPACITY)}")
        elif name == "max_active_per_tenant":
            words.append(f"{name}={_whole(member, 0, MAX_ACTIVE)}")
        else:
            hint = did_you_mean(
                name_only(name), _PROGRAM_MEMBERS, f"; there are {', '.join(_PROGRAM_MEMBERS)}"
            )
            raise ValueError(
                f"{member.source}, line {member.line}: {place.name}.{name_only(name)} is not known{hint}"
            )
    return [PREFIX + " ".join(words)] if words else []


def _one_of(place: _Place, words: tuple[str, ...]) -> str:
    if place.value not in words:
        place.wrong(f"one of {', '.join(words)}")
    return str(place.value)


def _weight(place: _Place) -> float:
    value = place.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_WEIGHT:
        place.wrong(f"a number above 0, up to {MAX_WEIGHT}")
    return float(value)


def _whole(place: _Place, low: int, high: int) -> int:
    value = place.value
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        place.wrong(f"a whole number between {low} and {high}")
    return int(value)


def _share(place: _Place) -> float:
    value = place.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        place.wrong("a share of the KV cache, above 0 and up to 1")
    return float(value)


def _switch(place: _Place) -> bool:
    if not isinstance(place.value, bool):
        place.wrong("true or false")
    return bool(place.value)


def _milliseconds(place: _Place, zero: bool) -> int:
    """Of a duration such as 30s, or a number of seconds."""
    value = place.value
    seconds: float | None = seconds_of(value) if isinstance(value, str) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value
    least = "0 s" if zero else "1 ms"
    if seconds is None or not 0 <= seconds <= MAX_SECS or (not zero and seconds < 0.001):
        place.wrong(f'a number of seconds, or one with ms, s, m or h such as "30s", from {least} to 24 h')
    return round(seconds * 1000)
