"""RouterArgs: the settings of one router, from the command line, YAML or Python, and what the core gets.

    RouterArgs.add_cli_args(parser)          the flags, in groups
    RouterArgs.from_cli_args(namespace)      what the command line said
    RouterArgs.from_yaml(text)               the same names in a file
    RouterArgs(policy="round_robin", …)      the same names in Python

Its fields are those of `Table` and `ReferenceTable`, in this order.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm_router._messages import quoted
from vllm_router.settings.checks import check_policy_options, check_settings, default_policy, warnings_about
from vllm_router.settings.command_line import FORMER_GIVEN, GIVEN, add_flag
from vllm_router.settings.flag import Flag
from vllm_router.settings.host import available_cpus, available_memory
from vllm_router.settings.kinds import Unfit
from vllm_router.settings.kubernetes import LabelSelector, OneOrMore
from vllm_router.settings.names import (
    FLAGS,
    FORMER_NAMES,
    POLICY_OPTIONS,
    SPELLINGS,
    present_name_of,
    unknown_name,
    warn_of_former_name,
)
from vllm_router.settings.reference_flags import REFERENCE_FLAGS, ReferenceTable
from vllm_router.settings.response_cache import DEFAULT_PREFIX, key_prefix_of
from vllm_router.settings.table import DEFAULT_REQUEST_ID_HEADERS, Table
from vllm_router.settings.yaml import settings_of_yaml

logger = logging.getLogger("vllm_router")

_LEFT_OUT = "_router_flags_left_out"  # in a namespace: fields whose flags the parser had for itself
PEER_SYNC_STRIDE_TOKENS = 256  # where --peer-sync connects routers and nothing else is said
_NEVER_PREFIXED = ("worker_urls", "host", "port")
_NO_EFFECT = "Accepted from older scripts, without effect"


def _names_the_nearest(cls: type[RouterArgs]) -> type[RouterArgs]:
    """The class with a constructor whose error about an unknown name says which one it may have meant."""
    make = cls.__init__

    @functools.wraps(make)
    def init(self: RouterArgs, *args: Any, **settings: Any) -> None:
        present = {}
        for name, value in settings.items():
            if name not in FLAGS and name not in FORMER_NAMES and type(self) is cls:
                raise TypeError(f"RouterArgs: {unknown_name(name, list(FLAGS))}")
            present_name = present_name_of(name)
            if present_name in present:
                raise TypeError(f"RouterArgs: {name} sets {present_name} a second time; keep one of them")
            present[present_name] = value
        make(self, *args, **present)

    setattr(cls, "__init__", init)  # noqa: B010, mypy would not have it assigned
    return cls


@_names_the_nearest
@dataclasses.dataclass(repr=False)
class RouterArgs(ReferenceTable, Table):
    """Settings of one router; see the head of this module.

    Field names and defaults are those of vllm-project/router's class of the same name, and the fields that it
    does not have follow ours of the same group. Three defaults differ from the command's, as they do there:
    `log_level`, `prometheus_port` and `prometheus_host` are None here, so a router made in Python opens no
    metrics listener unless told to. Values are checked when they are used, by `_validate_router_args()`.
    """

    def __new__(cls, *_: Any, **given: Any) -> RouterArgs:
        """Keeps which settings are given until `__post_init__`, since some choose the policy."""
        self = super().__new__(cls)
        self.__dict__["given"] = tuple(given)
        return self

    def __repr__(self) -> str:
        """The settings that differ from their defaults; secrets are left out."""
        usual = RouterArgs()
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.repr and getattr(self, field.name) != getattr(usual, field.name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __post_init__(self) -> None:
        given = [FORMER_NAMES.get(name, name) for name in self.__dict__.pop("given")]
        if self.policy is None:
            self.policy = default_policy(given)

    # Command line

    @staticmethod
    def add_cli_args(
        parser: argparse.ArgumentParser, use_router_prefix: bool = False, exclude_host_port: bool = False
    ) -> None:
        """Add every flag to `parser`, in groups.

        Args:
            parser: yours or the command's.
            use_router_prefix: spell the flags `--router-…`, for a parser that has flags of its own.
                `--worker-urls`, `--host` and `--port` are left as they are.
            exclude_host_port: leave out `--host` and `--port`.

        A flag that vllm-project/router does not have (`--seed`, `--block-size`) is left out where the parser
        has one of that name; `--help` names those, and `from_cli_args()` leaves them at their defaults.

        Raises:
            argparse.ArgumentError: the parser has a flag that vllm-project/router has as well.
        """
        groups: dict[str, Any] = {}
        taken = {name for action in parser._actions for name in (*action.option_strings, action.dest)}
        left_out: list[Flag] = []
        for flag in sorted(FLAGS.values(), key=lambda flag: bool(flag.no_effect)):
            if not flag.on_command_line or (exclude_host_port and flag.field in ("host", "port")):
                continue
            own = not use_router_prefix and flag.spelling not in REFERENCE_FLAGS
            if own and taken & {*flag.option_strings, flag.dest}:
                left_out.append(flag)
                continue
            title = _NO_EFFECT if flag.no_effect else flag.group
            title = f"Router: {title}" if use_router_prefix else title
            if title not in groups:
                groups[title] = parser.add_argument_group(title)
            prefix = "router" if use_router_prefix and flag.field not in _NEVER_PREFIXED else ""
            add_flag(groups[title], flag, prefix)
        if left_out:
            names = ", ".join(flag.spelling for flag in left_out)
            parser.add_argument_group(
                "Router: left out",
                f"This command has flags of its own with these names, which are not the router's: {names}.",
            )
            logger.info("flags of the router that the parser has already are left out: %s", names)
            parser.set_defaults(**{_LEFT_OUT: frozenset(flag.field for flag in left_out)})

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace, use_router_prefix: bool = False) -> RouterArgs:
        """Settings from a parsed command line; what it does not name has its default.

        Raises:
            ValueError: a bootstrap port of `--prefill` is neither a number nor `none`.
        """
        values: dict[str, Any] = {}
        left_out: frozenset[str] = getattr(args, _LEFT_OUT, frozenset())
        given: frozenset[str] = getattr(args, GIVEN, frozenset())
        for former, present in getattr(args, FORMER_GIVEN, {}).items():
            warn_of_former_name(former, present)
        for flag in FLAGS.values():
            if flag.field in left_out:
                continue
            prefix = "router_" if use_router_prefix and flag.field not in _NEVER_PREFIXED else ""
            name = prefix + flag.dest
            value = getattr(args, name, flag.default)
            if flag.field in given or value != flag.default:
                values[flag.field] = cls._from_raw(flag, value)
        return cls(**values)

    @classmethod
    def _from_raw(cls, flag: Flag, value: Any) -> Any:
        if isinstance(flag.kind, (LabelSelector, OneOrMore)):
            return flag.check(value)  # of all its appearances together
        parse = _RAW_PARSERS.get(flag.field)
        if parse is not None:
            return parse(value)
        # Lists are copied: the parser's default must not change with these settings.
        return list(value) if isinstance(value, list) else value

    @staticmethod
    def _parse_selector(selector: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
        """`["app=vllm", "tier=a=b"]` as `{"app": "vllm", "tier": "a=b"}`; items without `=` are skipped."""
        if isinstance(selector, Mapping):
            return dict(selector)
        return dict(item.split("=", 1) for item in selector or () if "=" in item)

    @staticmethod
    def _parse_prefill_urls(prefill: Sequence[Any] | None) -> list[tuple[str, int | None]]:
        """`[["http://a", "8998"], ["http://b", "none"], {"url": "http://c"}]` as (URL, port or None)."""
        pairs: list[tuple[str, int | None]] = []
        for row in prefill or ():
            if isinstance(row, Mapping):  # as YAML may have it
                row = _row_of(row, "url", "bootstrap_port")
            url, *more = (row,) if isinstance(row, str) else row
            port = more[0] if more else None
            if isinstance(port, str) and port.lower() == "none":
                port = None
            if len(more) > 1:
                shown = FLAGS["prefill_urls"].shown([url, *more])
                raise ValueError(f"--prefill takes one URL and one bootstrap port, not {shown}")
            if port is not None:
                try:
                    port = int(port)
                except ValueError:
                    port = 0
                if not 1 <= port <= 65535:
                    together = FLAGS["prefill_urls"].shown([url, *more])
                    # What follows a URL may be the rest of a password with a blank in it.
                    which = (
                        f"{quoted(more[0])} of prefill worker {url}"
                        if together == f"{url} {more[0]}"
                        else f"of prefill worker {together}"
                    )
                    raise ValueError(
                        f"Invalid bootstrap port {which}: it must be a number between 1 and 65535, or none"
                    )
            pairs.append((url, port))
        return pairs

    @staticmethod
    def _parse_decode_urls(decode: Sequence[Any] | None) -> list[str]:
        """`[["http://a"], ["http://b"]]` as a list of URLs."""
        rows = [_row_of(row, "url") if isinstance(row, Mapping) else row for row in decode or ()]
        return [row if isinstance(row, str) else row[0] for row in rows]

    # YAML

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the settings") -> RouterArgs:
        """Settings by name, in any accepted spelling.

        Raises:
            ValueError: an unknown name (with the nearest known one), a name given twice, or a value that does
                not fit.
        """
        return cls(**cls.values_of_dict(values, source))

    @classmethod
    def from_yaml(cls, text: str, source: str = "the YAML text") -> RouterArgs:
        """Settings from YAML: one mapping, names as in Python or as flags. Raises as from_dict() does."""
        return cls(**cls.values_of_yaml(text, source))

    def to_yaml(self) -> str:
        """YAML that from_yaml() reads back: the settings that differ from their defaults."""
        import yaml

        values: dict[str, Any] = {}
        for name, flag in FLAGS.items():
            value = getattr(self, name)
            if value != flag.default:
                values[name] = [_plain(item) for item in value] if isinstance(value, list) else value
        text: str = yaml.safe_dump(values, sort_keys=False)
        return text

    @classmethod
    def values_of_dict(cls, values: Mapping[str, Any], source: str) -> dict[str, Any]:
        """Field name to checked value, of the names that are given. Raises as from_dict() does."""
        found: dict[str, Any] = {}
        selected: dict[str, Any] = {}
        for given, value in values.items():
            spelling = SPELLINGS.get(str(given).replace("-", "_"))
            if spelling is None:
                raise ValueError(f"{source}: {unknown_name(str(given))}")
            flag, alias = spelling
            if alias and alias.former:
                warn_of_former_name(str(given), flag.field)
            if flag.field in found:
                raise ValueError(f"{source}: {given} sets {flag.field} a second time; keep one of them")
            kind = (alias and alias.kind) or flag.kind
            try:
                checked = (
                    None if value is None and flag.default is None else kind.check(kind.from_config(value))
                )
                if alias and alias.meaning:
                    checked = alias.meaning[str(checked)]
                found[flag.field] = cls._from_raw(flag, checked)
                if alias and checked is True:
                    selected |= alias.selects
            except Unfit as unfit:
                raise ValueError(f"{source}: {flag.complaint(value, unfit, alias)}") from None
            except (TypeError, AttributeError, LookupError):
                raise ValueError(
                    f"{source}: {given} is {flag.shown(value)}; write it as {_YAML_FORMS[flag.field]}"
                ) from None
        return selected | found

    @classmethod
    def values_of_yaml(cls, text: str, source: str) -> dict[str, Any]:
        """Field name to checked value, of the names that the text has. Raises as from_yaml() does."""
        return cls.values_of_dict(settings_of_yaml(text, source), source)

    # Checks

    def _validate_router_args(self) -> None:
        """Check every value, and refuse what is not implemented.

        Raises:
            ValueError: names the thing, the value, the limit and the remedy; or the flag whose function is
                not implemented.
        """
        check_settings(self)

    def warnings(self) -> list[str]:
        """Sentences about settings that are accepted and will not do what their names suggest."""
        return warnings_about(self)

    # What the C++ core takes

    def router_options(self) -> dict[str, Any]:
        """Options of the routing core: `worker_urls` and everything that check_policy_options() returns."""
        options = check_policy_options(
            {name: getattr(self, name) for name in POLICY_OPTIONS},
            warn=lambda _: None,  # launch_router() and from_args() have warned already
        )
        # A policy that matches no blocks has no such option.
        if self.peer_sync is not None and options.get("peer_sync_stride_tokens") == 0:
            options["peer_sync_stride_tokens"] = PEER_SYNC_STRIDE_TOKENS
        if self.vllm_pd_disaggregation:
            if self.vllm_discovery_address is not None:
                options["prefill_urls"], options["decode_urls"] = [], []
            return {"worker_urls": [], **options}
        options["prefill_urls"], options["decode_urls"] = [], []
        return {"worker_urls": FLAGS["worker_urls"].check(self.worker_urls), **options}

    def server_options(self) -> dict[str, Any]:
        """Options of the server, by field name; nothing is left open but keys and places that are unset.

        `threads` is above 0; `log_level` one of debug, info, warn, error, critical; `request_id_headers` a
        list in lower case. `prometheus_host` and `prometheus_port` are both None when metrics are off.
        """
        options = {
            name: flag.check(getattr(self, name)) for name, flag in FLAGS.items() if flag.scope == "server"
        }
        options["threads"] = options["threads"] or min(4, available_cpus())
        options["body_memory_mb"] = options["body_memory_mb"] or max(256, available_memory() // 4 // 2**20)
        options["log_level"] = options["log_level"] or "info"
        options["router_name"] = options["router_name"] or _host_name()
        options["response_cache_redis_key_prefix"] = key_prefix_of(self) or DEFAULT_PREFIX
        headers = options["request_id_headers"] or DEFAULT_REQUEST_ID_HEADERS
        options["request_id_headers"] = [header.lower() for header in headers]
        if options["prometheus_host"] is None or options["prometheus_port"] is None:
            options["prometheus_host"] = options["prometheus_port"] = None
        return options


def _row_of(row: Mapping[str, Any], *names: str) -> list[Any]:
    """The values of a mapping in this order; of the first name there has to be one. Raises LookupError."""
    if not set(row) <= set(names):
        raise LookupError(names)
    return [row[names[0]], *(row[name] for name in names[1:] if name in row)]


def _host_name() -> str:
    return re.sub(r"[^0-9A-Za-z_.-]", "-", socket.gethostname())[:64] or "router"


_RAW_PARSERS: dict[str, Callable[[Any], Any]] = {
    "prefill_urls": RouterArgs._parse_prefill_urls,
    "decode_urls": RouterArgs._parse_decode_urls,
}
_YAML_FORMS = {
    "prefill_urls": "[[http://host:8000, 8998], [http://host:8001, none]]",
    "decode_urls": "[http://host:8000, http://host:8001]",
}


def _add_former_attribute(former: str, present: str) -> None:
    setattr(
        RouterArgs,
        former,
        property(
            lambda self: getattr(self, present),
            lambda self, value: setattr(self, present, value),
            doc=f"Deprecated: use `{present}`.",
        ),
    )


for _former, _present in FORMER_NAMES.items():
    _add_former_attribute(_former, _present)


def _plain(item: Any) -> Any:
    """A tuple as the list that YAML knows."""
    return list(item) if isinstance(item, tuple) else item
