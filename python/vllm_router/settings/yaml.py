"""A YAML file of settings, read with bounds, and errors that never quote it: a line may hold a key.

PyYAML reads whatever it is given: a file of nested brackets ends in a RecursionError, and one of a few lines
whose aliases double each other stands for more values than memory holds. Settings need neither, so the text
is looked at first, event by event, and refused where it goes beyond what any settings have.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from vllm_router._messages import did_you_mean, show
from vllm_router._secrets import described
from vllm_router._version import __version__
from vllm_router.settings.kinds import NotYet, Switch, Unfit
from vllm_router.settings.names import FLAGS, name_only
from vllm_router.settings.policies import BLOCK_POLICIES, BUILT_POLICIES, POLICY_ALIASES
from vllm_router.settings.response_cache import MAX_TTL_SECS, seconds_of

MAX_YAML_BYTES = 2**20  # 10,000 worker URLs are 300 KB
MAX_YAML_DEPTH = 32  # settings are three deep at most
MAX_YAML_VALUES = 100_000  # with aliases written out


def too_long(source: str, what: str = "file of settings") -> ValueError:
    """What to raise about a text that is longer than MAX_YAML_BYTES."""
    remedy = f"name the {what}, or shorten it"
    if what == "file of workers":  # which is named already, and may be right
        remedy = "list fewer workers in it, or name another one by --worker-file"
    return ValueError(
        f"{source} has more than {MAX_YAML_BYTES} bytes, which is the limit for a {what}; {remedy}"
    )


def settings_of_yaml(text: str, source: str) -> dict[str, Any]:
    """The settings of a YAML text, those of its sections among the others, by the names that it has.

    Raises:
        ValueError: as mapping_of_yaml() does, or a section is not what it must be.
    """
    values = mapping_of_yaml(text, source)
    flat = _without_cache_section(_without_sections(values, source), source)
    return _without_prefix_section(_without_kv_section(flat, source), source)


def mapping_of_yaml(text: str, source: str) -> dict[str, Any]:
    """The settings of a YAML text, by the names that it has; empty where it has none.

    Raises:
        ValueError: it is no YAML, no mapping, too long, too deep, stands for too many values, or has a name
            twice. The message has the line and the column, and nothing of the text but names of settings.
    """
    node, values = composed_yaml(text, source)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError(f"{source} must be a mapping of names to values, such as `port: 30000`")
    # PyYAML lets the last of two equal keys win, and the first one was meant, too.
    keys = Counter(str(key.value) for key, _ in getattr(node, "value", ()))
    for key, times in keys.items():
        if times > 1:
            raise ValueError(f"{source}: {name_only(key)} appears twice; keep one of them")
    return values


def composed_yaml(
    text: str,
    source: str,
    what: str = "file of settings",
    inspect: Callable[[Any], None] | None = None,
) -> tuple[Any, Any]:
    """A YAML text as its root node, which knows the line of each value, and as its value; None without any.

    Args:
        text: The YAML.
        source: Its name in messages.
        what: What it is, in the message about one that is too long.
        inspect: Gets the root node as it was written, before `<<` is replaced by what it refers to.

    Raises:
        ValueError: it is no YAML, too long, too deep, or stands for too many values; or of `inspect`.
            The message has the line and the column, and nothing of the text.
    """
    try:
        import yaml
    except ImportError as error:
        raise ValueError("YAML settings need the package PyYAML: pip install PyYAML") from error

    if len(text) > MAX_YAML_BYTES or len(text.encode(errors="surrogatepass")) > MAX_YAML_BYTES:
        raise too_long(source, what)

    class Loader(yaml.SafeLoader):
        """With the place of a value that its own type cannot hold, such as the date 2024-13-45."""

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, OverflowError):
                raise yaml.constructor.ConstructorError(
                    problem="this looks like a number or a date, but is not valid; put it in quotes",
                    problem_mark=node.start_mark,
                ) from None

    try:
        _check_bounds(yaml, text, source)
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            if inspect is not None and node is not None:
                inspect(node)
            values = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is not YAML{_place_and_problem(error, text)}") from None
    return node, values


def _check_bounds(yaml: Any, text: str, source: str) -> None:
    """That the text is not too deep and does not stand for too many values, aliases written out."""
    sizes: dict[str, tuple[int, int]] = {}  # of what has an anchor: values, depth
    open_nodes: list[tuple[str | None, int, int]] = [(None, 0, 0)]  # anchor, values so far, depth below

    def add(values: int, depth: int) -> None:
        anchor, before, deepest = open_nodes[-1]
        open_nodes[-1] = (anchor, before + values, max(deepest, depth))

    total = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark = event.start_mark
        where = f"{source}, line {mark.line + 1}, column {mark.column + 1}"
        values, depth = 0, 0
        if isinstance(event, yaml.AliasEvent):
            values, depth = sizes.get(event.anchor, (1, 0))
            if any(event.anchor == anchor for anchor, _, _ in open_nodes):
                raise ValueError(
                    f"{where}: an alias (*) refers to a value that contains it; write the value out"
                )
        elif isinstance(event, yaml.ScalarEvent):
            values = 1
            if event.anchor is not None:
                sizes[event.anchor] = (1, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1, 0))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, inner, deepest = open_nodes.pop()
            if anchor is not None:
                sizes[anchor] = (inner, deepest + 1)
            add(inner, deepest + 1)
        if values:
            add(values, depth)
            total += values
        if len(open_nodes) - 1 + depth > MAX_YAML_DEPTH:
            raise ValueError(
                f"{where}: nested deeper than {MAX_YAML_DEPTH} levels; settings have three at most"
            )
        if total > MAX_YAML_VALUES:
            raise ValueError(
                f"{where}: more than {MAX_YAML_VALUES} values, which is the limit (an alias counts as all "
                "values that it refers to); shorten the file"
            )


# What PyYAML expected or found by kind, such as '<scalar>' or ':'. All else in quotes may be the text's.
_KIND = re.compile(r"'(?:<[a-z ]+>|[-:,?\[\]{}])'")
_QUOTED = re.compile(rf"""{_KIND.pattern}|'.*'|".*\"""", re.DOTALL)


def _place_and_problem(error: Any, text: str) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        line, column = mark.line + 1, mark.column + 1
        problem = getattr(error, "problem", None) or getattr(error, "context", None) or "it cannot be read"
    else:  # a character that no YAML has
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        problem = "a control character, which YAML does not allow"
    return f": line {line}, column {column}: {_without_quotations(problem)}"


def _without_quotations(problem: str) -> str:
    return " ".join(
        _QUOTED.sub(lambda match: match[0] if _KIND.fullmatch(match[0]) else "...", problem).split()
    )


def _without_sections(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of `routing:` and of the policies' sections in it among the others."""
    routing = values.get("routing")
    if routing is None:
        return values
    if not isinstance(routing, dict):
        raise ValueError(
            f"{source}: routing is {show(routing)}; it is a mapping, such as `policy: least_load`"
        )
    flat = {name: value for name, value in values.items() if name != "routing"}
    for name, value in routing.items():
        section = value if isinstance(value, dict) and name in BUILT_POLICIES else {name: value}
        for inner, setting in section.items():
            if name in BLOCK_POLICIES and inner == "eviction_interval_secs":
                continue  # nothing waits for it: the limit on blocks holds after every request
            if inner in flat:
                raise ValueError(f"{source}: {inner} appears twice; keep one of them")
            flat[inner] = setting
    return flat


# What `response_cache:` and `redis:` in it have, each with its setting.
_CACHE_SETTINGS = {
    "enabled": "response_cache",
    "ttl": "response_cache_ttl_secs",
    **{
        name: f"response_cache_{name}"
        for name in (
            *("backend", "capacity", "max_response_size", "max_stream_buffer_size", "max_request_size"),
            *("max_memory_bytes", "capture_memory_bytes", "store_queue_bytes", "store_headers", "routes"),
            *("temperature_absent", "key_scheme", "key_ignore", "tenant_source", "tenant_header"),
            *("coalesce", "coalesce_wait_ms", "coalesce_max_followers", "coalesce_max_promotions"),
            *("replay_events_per_second", "invalidate_on"),
        )
    },
}
_REDIS_SETTINGS = {
    "url": "redis_url",
    "pool_size": "redis_pool_size",
    "connect_timeout_ms": "redis_connect_timeout_ms",
    "command_timeout_ms": "redis_command_timeout_ms",
    "password_file": "redis_password_file",
    "ca_file": "redis_ca_file",
    "client_cert_file": "redis_cert_path",
    "client_key_file": "redis_key_path",
    "key_prefix": "response_cache_redis_key_prefix",
    "fallback_capacity": "response_cache_fallback_capacity",
    "fallback_ttl_seconds": "response_cache_fallback_ttl_secs",
    "fallback_to_memory": "response_cache_fallback_to_memory",
    "lookup_budget_ms": "response_cache_lookup_budget_ms",
    "integrity_key_file": "response_cache_integrity_key_file",
    "health_interval_seconds": "response_cache_health_interval_secs",
}
_TLS_SCHEMES = {"redis": "rediss", "valkey": "valkeys"}


def _without_cache_section(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of `response_cache:` among the others, whether or not it is enabled.

    So a reload may turn the cache on and off, though a change of its backend needs a restart; and
    `kv_cache_index:` may use its Redis alone. `response_cache: true` is the setting of this name.

    Raises:
        ValueError: it is no mapping, has a name that is not its own, or a value that does not fit.
    """
    section = values.get("response_cache")
    if isinstance(Switch().from_config(section), bool):
        return values
    flat = {name: value for name, value in values.items() if name != "response_cache"}
    if section is None:
        return flat
    where = f"{source}: response_cache"
    if not isinstance(section, dict):
        raise ValueError(f"{where} is {show(section)}; write it as {{enabled: true}}")
    _mapping(section, where, (*_CACHE_SETTINGS, "redis"))
    _switch(section, "enabled", False, where)
    redis = section.get("redis")
    if redis is not None and not isinstance(redis, dict):  # which may be a URL with its password
        raise ValueError(f"{where}.redis is {described(redis)}; write it as a mapping, such as url: …")
    _mapping(redis, f"{where}.redis", ("url", "tls", *_REDIS_SETTINGS))
    for here, settings, mapping in (
        ("response_cache", _CACHE_SETTINGS, _with_seconds(section, where)),
        ("response_cache.redis", _REDIS_SETTINGS, _with_tls(redis or {}, f"{where}.redis")),
    ):
        for key, value in mapping.items():
            name = settings.get(key)
            if name is None or (value is None and FLAGS[name].default is None):
                continue
            if name in flat:
                raise ValueError(f"{source}: {here}.{key} and {name} set the same option; keep one of them")
            flat[name] = _checked(name, value, f"{source}: {here}.{key}")
    return flat


def _checked(name: str, value: object, where: str) -> Any:
    """The value of a setting; an error names it by its place in the file."""
    flag = dataclasses.replace(FLAGS[name], field=where)
    try:
        return flag.kind.check(flag.kind.from_config(value))
    except NotYet as unfit:
        raise ValueError(
            f"{where} is {flag.shown(value)}, which is not implemented in vllm-router {__version__} yet; "
            f"{unfit}"
        ) from None
    except Unfit as unfit:
        raise ValueError(flag.complaint(value, unfit)) from None


def _with_seconds(section: dict[str, Any], where: str) -> dict[str, Any]:
    """The same, with `ttl` in seconds."""
    changed = dict(section)
    if "ttl" in changed:
        ttl = changed["ttl"]
        seconds = seconds_of(ttl) if isinstance(ttl, str) else None
        if seconds is None or not 1 <= seconds <= MAX_TTL_SECS:
            raise ValueError(
                f'{where}.ttl is {show(ttl)}; write a number and one of ms, s, m, h, d, such as "5m" (1 s to '
                "30 d)"
            )
        changed["ttl"] = seconds
    return changed


def _with_tls(redis: dict[str, Any], where: str) -> dict[str, Any]:
    """The same, with the scheme of the URL that `tls` asks for."""
    tls = Switch().from_config(redis.get("tls", False))
    if not isinstance(tls, bool):
        raise ValueError(f"{where}.tls is {described(tls)}; it must be true or false")
    if not tls or not isinstance(redis.get("url"), str):
        return redis
    scheme, separator, rest = redis["url"].partition("://")
    return {**redis, "url": _TLS_SCHEMES.get(scheme.lower(), scheme) + separator + rest}


# What `kv_cache_index:` and the mappings in it have.
_KV_SECTION = (
    "enabled",
    "backend",
    "max_entries",
    "entry_ttl_seconds",
    "scoring",
    "storage_offloading",
    "event_sources",
)
_KV_SCORING = (
    "overlap_weight",
    "load_weight",
    "health_weight",
    "min_overlap_threshold",
    "gpu_tier_weight",
    "storage_tier_weight",
)
_KV_OFFLOADING = ("enabled", "treat_eviction_as_offload")
_KV_SOURCE = ("backend_name", "endpoint", "reconnect_interval_ms", "worker", "replay_endpoint", "dp_size")
_KV_HTTP_ONLY = ("reconnect_interval_ms",)
_KV_ZEROMQ_ONLY = ("replay_endpoint", "dp_size")
_MAX_DP_SIZE = 256
_KV_POLICY = "kv_overlap"
_MAX_RECONNECT_MS = 60_000  # as cpp/events/prefix_source.h


def _mapping(value: object, where: str, names: Sequence[str]) -> dict[str, Any]:
    """The value, which must be a mapping of some of these names; empty where it is unset."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {show(value)}; write it as a mapping, such as {names[0]}: …")
    for name in value:
        if name not in names:
            hint = did_you_mean(str(name), list(names), f"; it has {', '.join(names)}")
            raise ValueError(f"{where}.{name_only(str(name))} is not a known setting{hint}")
    return value


def _switch(section: dict[str, Any], name: str, default: bool, where: str) -> bool:
    value = Switch().from_config(section.get(name, default))
    if not isinstance(value, bool):
        raise ValueError(f"{where}.{name} is {show(value)}; it must be true or false")
    return value


def _without_kv_section(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of `kv_cache_index:` among the others; its `enabled` chooses the policy.

    Raises:
        ValueError: it is no mapping, has a name that is not its own, a value that does not fit, or asks for
            what is not implemented or for another policy than `policy` does.
    """
    flat = {name: value for name, value in values.items() if name != "kv_cache_index"}
    where = f"{source}: kv_cache_index"
    section = values.get("kv_cache_index")
    if section is None:
        return flat
    if not isinstance(section, dict):
        raise ValueError(f"{where} is {show(section)}; write it as {{enabled: true}}")
    if not _switch(section, "enabled", False, where):
        return flat
    _mapping(section, where, _KV_SECTION)
    scoring = _mapping(section.get("scoring"), f"{where}.scoring", _KV_SCORING)
    offloading = _mapping(section.get("storage_offloading"), f"{where}.storage_offloading", _KV_OFFLOADING)
    backend = section.get("backend", "memory")
    if backend not in ("memory", "redis"):
        raise ValueError(f"{where}.backend is {show(backend)}; it must be memory or redis")
    if backend == "redis" and "redis_url" not in flat:
        raise ValueError(
            f"{where}.backend is redis and response_cache.redis.url is missing; write for example "
            '"redis://localhost:6379"'
        )
    entries = section.get("max_entries", 100_000)
    if entries == 0:
        raise ValueError(f"{where}.max_entries is 0; it must be between 100 and 10000000")
    tracked = _switch(offloading, "enabled", False, f"{where}.storage_offloading")
    evictions = _switch(offloading, "treat_eviction_as_offload", True, f"{where}.storage_offloading")
    found = {
        "kv_index_max_entries": ("max_entries", entries),
        "kv_index_backend": ("backend", backend),
        "kv_index_ttl_secs": ("entry_ttl_seconds", section.get("entry_ttl_seconds", 600)),
        "kv_storage_offloading": (
            "storage_offloading",
            "off" if not tracked else "evictions" if evictions else "offloads",
        ),
        **{
            name: ("event_sources", sources)
            for name, sources in _kv_sources(section.get("event_sources"), where).items()
            if sources or name == "kv_prefix_source"
        },
        **{f"kv_{name}": (f"scoring.{name}", value) for name, value in scoring.items()},
    }
    for name, (key, value) in found.items():
        if name in flat:
            raise ValueError(f"{where}.{key} and {name} set the same option; keep one of them")
        try:
            flag = FLAGS[name]
            flat[name] = flag.kind.check(flag.kind.from_config(value))
        except Unfit as unfit:
            raise ValueError(f"{where}.{key}: {flag.complaint(value, unfit)}") from None
    named = str(flat.setdefault("policy", _KV_POLICY))
    if _policy_of(named) not in BLOCK_POLICIES:
        raise ValueError(
            f"{where}.enabled needs a policy that reads the index, and policy is {named}; write one of "
            f"{', '.join(BLOCK_POLICIES)}, or nothing for {_KV_POLICY}"
        )
    return flat


def _kv_sources(rows: object, where: str) -> dict[str, list[str]]:
    """The rows of `event_sources:` by the setting that takes them: of http and https, and of ZeroMQ."""
    found: dict[str, list[str]] = {
        "kv_prefix_source": [],
        "kv_event_source": [],
        "kv_event_replay_source": [],
    }
    if rows is None:
        return found
    if not isinstance(rows, list):
        raise ValueError(f"{where}.event_sources is {show(rows)}; write it as a list of mappings")
    for number, value in enumerate(rows):
        here = f"{where}.event_sources[{number}]"
        row = _mapping(value, here, _KV_SOURCE)
        for name in ("backend_name", "endpoint"):
            if not isinstance(row.get(name), str) or not row[name].strip():
                raise ValueError(f"{here}.{name} is {show(row.get(name))}; it must be a text")
        if "=" in row["backend_name"]:
            raise ValueError(f"{here}.backend_name has a '='; write a name without one")
        zeromq = row["endpoint"].startswith(("tcp://", "ipc://"))
        for name in _KV_HTTP_ONLY if zeromq else _KV_ZEROMQ_ONLY:
            if name in row:
                kinds = "http:// and https://" if zeromq else "tcp:// and ipc://"
                raise ValueError(
                    f"{here}.{name} is of endpoints {kinds}, and this is {show(row['endpoint'])}"
                )
        if zeromq:
            live, replay = _zeromq_source(row, here)
            found["kv_event_source"].append(live)
            found["kv_event_replay_source"] += replay
        else:
            found["kv_prefix_source"].append(_prefix_source(row, here))
    return found


def _prefix_source(row: dict[str, Any], here: str) -> str:
    delay = row.get("reconnect_interval_ms", 1000)
    if isinstance(delay, bool) or not isinstance(delay, int) or not 1 <= delay <= _MAX_RECONNECT_MS:
        raise ValueError(
            f"{here}.reconnect_interval_ms is {show(delay)}; it is the delay before a lost stream is "
            f"requested again and must be a whole number between 1 and {_MAX_RECONNECT_MS}"
        )
    extra = {name: row[name] for name in ("reconnect_interval_ms", "worker") if name in row}
    text = f"{row['backend_name']}={row['endpoint']}".replace(",", "%2C")
    return ",".join([text, *(f"{name}={item}" for name, item in extra.items())])


def _zeromq_source(row: dict[str, Any], here: str) -> tuple[str, list[str]]:
    """The worker with the endpoint of each rank, and with that of each rank's replays if there are any."""
    worker, ranks = row.get("worker"), row.get("dp_size", 1)
    if not isinstance(worker, str) or not worker.strip():
        raise ValueError(
            f"{here}.worker is {show(worker)}; it must be the worker's URL, such as http://gpu-0:8000, since "
            "an endpoint of ZeroMQ does not tell it"
        )
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= _MAX_DP_SIZE:
        raise ValueError(
            f"{here}.dp_size is {show(ranks)}; it is the number of data-parallel ranks and must be a whole "
            f"number between 1 and {_MAX_DP_SIZE}"
        )
    ports = {}
    found = []
    for name in ("endpoint", "replay_endpoint"):
        base = row.get(name)
        if base is None:
            continue
        if not isinstance(base, str):
            raise ValueError(f"{here}.{name} is {show(base)}; it must be a text")
        host, _, port = base.rpartition(":")
        if ranks == 1:
            found.append(f"{worker}={base}")
            continue
        if not (base.startswith("tcp://") and port.isdecimal()):
            raise ValueError(
                f"{here}.{name} is {show(base)}, and dp_size is {ranks}: each rank adds its number to the "
                "port, so write tcp://HOST:PORT"
            )
        ports[name] = int(port)
        found.append(f"{worker}={','.join(f'{host}:{int(port) + rank}' for rank in range(ranks))}")
    if len(ports) == 2 and abs(ports["endpoint"] - ports["replay_endpoint"]) < ranks:
        raise ValueError(
            f"{here}: ranks 0 to {ranks - 1} publish at ports {ports['endpoint']} to "
            f"{ports['endpoint'] + ranks - 1} and replay at {ports['replay_endpoint']} to "
            f"{ports['replay_endpoint'] + ranks - 1}, which overlap; move replay_endpoint {ranks} "
            "ports or more from endpoint"
        )
    return found[0], found[1:]


def _policy_of(name: str) -> str:
    plain = name.strip().lower().replace("-", "_")
    return POLICY_ALIASES.get(plain, plain)


def _without_prefix_section(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same settings, those of `prefix_routing:` among the others; its `enabled` chooses the policy.

    Raises:
        ValueError: it is no mapping, has a name that is not its own, or asks for another policy than `policy`
            does.
    """
    if values.get("prefix_routing") is None:
        return {name: value for name, value in values.items() if name != "prefix_routing"}
    flat = dict(values)
    section = flat.pop("prefix_routing")
    if not isinstance(section, dict):
        raise ValueError(f"{source}: prefix_routing is {show(section)}; write it as {{enabled: true}}")
    own = [name for name, flag in FLAGS.items() if "prefix_aware" in flag.policies]
    own.append("anthropic_cache_control_injection")
    for name, value in section.items():
        where = f"{source}: prefix_routing.{name}"
        if name not in own and name != "enabled":
            otherwise = f"; it has {', '.join(['enabled', *own])}"
            raise ValueError(f"{where} is not a known setting{did_you_mean(str(name), own, otherwise)}")
        if name in own and name in flat:
            raise ValueError(f"{where} and {name} set the same option; keep one of them")
        if name in own:
            flat[name] = value
        elif _switch(section, name, False, f"{source}: prefix_routing"):
            named = str(flat.setdefault("policy", "prefix_aware"))
            if _policy_of(named) not in ("prefix_aware", _KV_POLICY):  # which falls back to the same ring
                raise ValueError(f"{where} chooses prefix_aware, and policy is {named}; keep one of them")
    return flat
