"""Writes the chart's schema: python scripts/chart_schema.py > deploy/helm/vllm-router/values.schema.json.

The settings below `router:` are those of RouterArgs; all other values have the types that they have in
values.yaml. Names are in lower case here, where the router itself takes any case.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from vllm_router.settings.flag import Flag
from vllm_router.settings.kinds import Choice, JsonObject, Kind, Number, NumberOr, Raw, Switch, Text, Words
from vllm_router.settings.kubernetes import OneOrMore
from vllm_router.settings.names import SPELLINGS

VALUES = Path(__file__).parents[1] / "deploy" / "helm" / "vllm-router" / "values.yaml"

# Mappings of the router's YAML file that hold settings; the router checks what is in them.
SECTIONS = ("routing", "prefix_routing", "kv_cache_index", "response_cache")

# Settings that the templates read, by these names alone. Those that are needed have defaults in values.yaml.
PORTS = ("port", "prometheus_port")
TIMES = ("shutdown_settle_secs", "shutdown_grace_period_secs")
NEEDED = (*PORTS, *TIMES, "host")
READ = (
    *NEEDED,
    "admin_port",
    "admin_host",
    "api_key",
    "redis_url",
    "peer_sync",
    "peer_sync_secret_file",
    "client_api_key_file",
    "admin_api_key_file",
    "tls_cert_path",
    "tls_client_ca_file",
    "service_discovery",
    "inference_pool",
    "epp_port",
    "pod_deletion_cost",
    "vllm_pd_disaggregation",
)

# Helm reads numbers as doubles, which would change larger ones.
LARGEST_WHOLE = 2**53

# Values of the chart: those of a few words, those that may be a share such as 25%, and mappings of any names.
CHOICES = {
    "image.pullPolicy": ["Always", "IfNotPresent", "Never"],
    "service.type": ["ClusterIP", "NodePort", "LoadBalancer"],
    "epp.inferencePool.failureMode": ["FailClose", "FailOpen"],
}
NUMBER_OR_SHARE = ("podDisruptionBudget.maxUnavailable",)
FREE = ("resources", "peerSyncRedis.resources", "strategy", "grafanaDashboard.labels")


def schema() -> dict[str, Any]:
    """The whole schema."""
    values = yaml.safe_load(VALUES.read_text())
    del values["router"]
    whole = _shape(values)
    whole["properties"]["router"] = _router()
    whole["properties"]["global"] = {"type": "object"}  # Helm's, where the chart is part of another
    return {"$schema": "http://json-schema.org/draft-07/schema#", **whole}


def _shape(value: Any, name: str = "") -> dict[str, Any]:
    """What a value of the chart may be: of the type that it has, with the names that it has."""
    if isinstance(value, dict) and value and name not in FREE:
        properties = {
            inner: _shape(part, f"{name}.{inner}" if name else inner) for inner, part in value.items()
        }
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if name in CHOICES:
        return {"enum": CHOICES[name]}
    if name in NUMBER_OR_SHARE:
        return {"type": ["integer", "string"]}
    for kind, of_json in ((bool, "boolean"), (int, "integer"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return {"type": of_json, "minimum": 0} if of_json == "integer" else {"type": of_json}
    return {"type": "object"}


def _router() -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for name, (flag, alias) in SPELLINGS.items():
        if name == flag.field:
            properties[name] = _setting(flag)
        elif flag.field in READ:
            continue
        elif alias and alias.kind:
            properties[name] = {
                "enum": [word for word, meant in alias.meaning.items() if flag.is_default(meant)] or [[]]
            }
        else:
            properties[name] = _same_as(flag.field)
        if "_" in name and flag.field not in READ:
            # A section has one spelling, so the other one is the setting alone.
            same = properties[name] if name in SECTIONS else _same_as(name)
            properties[name.replace("_", "-")] = same
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [*NEEDED],
        "properties": properties | {name: _section(name, properties) for name in SECTIONS},
    }


def _section(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A mapping; of a section that has the name of a setting, also what that may be."""
    if name not in properties:
        return {"type": "object"}
    return {**properties[name], "type": [properties[name]["type"], "object"]}


def _same_as(name: str) -> dict[str, Any]:
    return {"$ref": f"#/properties/router/properties/{name}"}


def _setting(flag: Flag) -> dict[str, Any]:
    if flag.not_built:
        nothing = [value for value in (flag.default, None, [], {}) if flag.is_default(value)]
        found: dict[str, Any] = {
            "enum": [value for at, value in enumerate(nothing) if value not in nothing[:at]]
        }
    else:
        found = _values(flag.kind)
        if flag.field in (*PORTS, "admin_port"):
            found["minimum"] = 1
        if flag.default is None and flag.field not in PORTS:
            found = {"anyOf": [found, {"type": "null"}]}
    return {"description": f"{flag.what[0].upper()}{flag.what[1:]}.", **found}


def _values(kind: Kind) -> dict[str, Any]:
    """What YAML may say for a value of this kind; `Kind.check` may know more."""
    match kind:
        case Switch():
            return {"type": "boolean"}
        case Choice():
            names = [*kind.names, *kind.aliases]
            return {"enum": list(dict.fromkeys(names + [name.replace("_", "-") for name in names]))}
        case Number():
            number: dict[str, Any] = {"type": "integer" if kind.whole else "number", "minimum": kind.low}
            if kind.high is not None:
                number["maximum"] = min(kind.high, LARGEST_WHOLE) if kind.whole else kind.high
            others: list[dict[str, Any]] = [{"const": 0}] if kind.zero and kind.low > 0 else []
            others += [{"const": kind.word}] if isinstance(kind, NumberOr) else []
            return {"anyOf": [number, *others]} if others else number
        case JsonObject():
            return {"type": ["string", "object"]}
        case Text():
            return {"type": "string", "minLength": 1}
        case Words():
            return {"type": ["array", "string"], "items": {"type": "string", "minLength": 1}}
        case OneOrMore():
            return {"type": ["array", "integer", "string"], "minLength": 1, "minItems": 1}
        case Raw():
            return {"type": ["array", "object", "string"]}
    raise AssertionError(kind)


def main() -> None:
    """Print it."""
    print(json.dumps(schema(), indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
