"""The texts of `vllm-router --help`: COMMON, a line each; all flags; or those of a group, or one."""

from __future__ import annotations

import argparse
import copy
import os
import sys
from collections.abc import Sequence
from typing import Any

from vllm_router._messages import did_you_mean
from vllm_router.settings.flag import Flag
from vllm_router.settings.names import FLAGS, SPELLINGS

# Flags that `--help` shows: what starts a router, and what most of them set.
COMMON = (
    "worker_urls",
    "worker_file",
    "worker_dns",
    "service_discovery",
    "selector",
    "host",
    "port",
    "threads",
    "api_key",
    "peer_sync",
    "policy",
    "block_size",
    "kv_events",
    "response_cache",
    "request_timeout_secs",
    "stream_idle_timeout_secs",
    "max_payload_size",
    "health_check_interval_secs",
    "shutdown_grace_period_secs",
    "log_level",
    "log_format",
    "prometheus_host",
    "prometheus_port",
    "enable_trace",
    "max_concurrent_requests",
    "queue_size",
    "rate_limit_tokens_per_second",
    "max_worker_requests",
    "client_api_key_file",
    "admin_api_key_file",
    "admin_port",
    "tls_cert_path",
    "tls_key_path",
    "prefill_urls",
    "decode_urls",
)
MORE = "--help all shows every flag, --help GROUP those of a group, --help FLAG one. The groups: {}."


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """One line per flag: its name and its value, then the text."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=min(110, _terminal_width()))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        several = " ..." if action.nargs in ("*", "+") else ""
        return f"{names} {action.metavar}{several}" if action.nargs != 0 and action.metavar else names


class HelpAction(argparse.Action):
    """Prints one of the texts and ends the process."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        text = parser.format_help() if values == "all" else _text(parser, values)
        parser._print_message(text, sys.stdout)
        parser.exit()


def filled(text: str) -> str:
    """A paragraph as wide as the terminal."""
    import textwrap

    return textwrap.fill(text, min(110, _terminal_width()), break_on_hyphens=False)


def _text(parser: argparse.ArgumentParser, asked: str | None) -> str:
    formatter = parser._get_formatter()
    groups = _groups(parser)
    chosen: dict[str, Sequence[argparse.Action]]
    if asked is None:
        formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
        formatter.add_text(parser.description)
        chosen = {name: [_short(one) for one in group if _is_common(one)] for name, group in groups.items()}
        epilog = filled(MORE.format("; ".join(name for name in groups if name != "General")))
    else:
        chosen, epilog = _chosen(parser, groups, asked), None
    for name, actions in chosen.items():
        formatter.start_section(name)
        formatter.add_arguments(actions)
        formatter.end_section()
    formatter.add_text(epilog)
    return formatter.format_help()


def _groups(parser: argparse.ArgumentParser) -> dict[str, Sequence[argparse.Action]]:
    """Those that have something to show, by their titles."""
    groups = {group.title or "": group._group_actions for group in parser._action_groups}
    return {
        title: actions
        for title, actions in groups.items()
        if any(action.help != argparse.SUPPRESS for action in actions)
    }


def _chosen(
    parser: argparse.ArgumentParser, groups: dict[str, Sequence[argparse.Action]], asked: str
) -> dict[str, Sequence[argparse.Action]]:
    name = asked.strip().lstrip("-").lower().replace("-", "_")
    spelling = SPELLINGS.get(name)
    if spelling is not None:
        flag = spelling.flag
        return {flag.group: [action for action in groups.get(flag.group, ()) if _flag(action) == flag]}
    words = _plain(asked.strip())
    found = {title: actions for title, actions in groups.items() if words and words in _plain(title)}
    if not found:
        known = ["all", *groups, *(flag.spelling.lstrip("-") for flag in FLAGS.values())]
        parser.error(f"--help {asked}: no group or flag has that name" + did_you_mean(asked, known))
    return found


def _flag(action: argparse.Action) -> Flag | None:
    flag: Flag | None = getattr(action, "flag", None)
    return flag


def _plain(title: str) -> str:
    return title.lower().replace("-", " ").replace("_", " ").replace("/", " ")


def _is_common(action: argparse.Action) -> bool:
    flag = _flag(action)
    return action.help != argparse.SUPPRESS and (flag is None or flag.field in COMMON)


def _short(action: argparse.Action) -> argparse.Action:
    """With the first sentence of its help."""
    flag = _flag(action)
    if flag is None:
        return action
    short = copy.copy(action)
    default = flag.command_default
    shown = f" ({default})" if default and type(default) in (str, int, float) else ""
    short.help = f"{flag.what[0].upper()}{flag.what[1:]}{shown}.".replace("%", "%%")
    return short


def _terminal_width() -> int:
    try:
        return max(60, os.get_terminal_size().columns)
    except OSError:
        return 110
