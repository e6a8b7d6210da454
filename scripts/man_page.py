"""Prints the man page, which is made of the flags: python scripts/man_page.py > vllm-router.1."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_router.completion import commands
from vllm_router.settings import environment
from vllm_router.settings.flag import Flag, plain_help
from vllm_router.settings.kinds import Switch
from vllm_router.settings.names import FLAGS

HEAD = r"""
.TH VLLM\-ROUTER 1 2026-11-26 "vllm\-router" "User Commands"
.SH NAME
vllm\-router \- an HTTP router in front of LLM workers
.SH SYNOPSIS
.B vllm\-router
.RB [ \-\-worker\-urls
.IR URL " ...]"
.RB [ \-\-policy
.IR NAME ]
.RB [ \-\-port
.IR PORT ]
.RI [ flags ]
.PP
.B vllm\-router
.I command
.RI [ flags ]
.SH DESCRIPTION
One address in front of many LLM workers.
The router picks a worker for each request and streams its response through.
It serves until it receives SIGTERM or SIGINT.
.PP
Names of flags may be written with \- or _, lists with blanks or commas.
A value follows its flag after a blank or after =.
Where a file may have turned a switch on, \-\-no\-... turns it off.
Durations are in seconds and may have a fraction.
Flags are not abbreviated.
.SH OPTIONS
.TP
.BR \-h ", " \-\-help " [" \fIWHAT\fR ]
Show the usual flags and exit; all: every flag; else those of a group, or one flag.
.TP
.BR \-V ", " \-\-version
Show the version and exit.
.TP
.BI \-\-config " FILE"
A YAML file of settings, with the same names as the flags.
The command line overrides it.
"""

# Sections whose entries are a term and a text.
EXIT_STATUS = {
    "0": "Served, and ended cleanly.",
    "1": "Could not start, for example because the port is in use.",
    "2": "A mistake on the command line or in the file; nothing was started.",
    "3": "Stopped, but the grace period ended before every request did; those left were cut.",
}
ENVIRONMENT = {
    "API_KEY_VALIDATION_URLS": "URLs with commas between them, which stand in for --api-key-validation-urls. "
    "If it is not set, it is read from the nearest file .env of the working directory or of one above it.",
    "VLLM_ROUTER_SLL_SESSION_EXPIRATION_IN_S": "Seconds, which stand in for --session-ttl-secs.",
}
FILES = {
    "/etc/vllm-router/router.yaml": "The settings that the systemd units read.",
    "/etc/vllm-router/environment": "The environment of the systemd units; optional.",
    "/var/log/vllm-router": "Where the units may write --log-dir and --record-log.",
    "/var/lib/vllm-router": "Where the units may keep --record-log-salt-file.",
}
SIGNALS = {
    "SIGTERM, SIGINT": "End gracefully: /readiness is 503, the port is closed after --shutdown-settle-secs, "
    "and requests in flight have --shutdown-grace-period-secs to finish. The same signal again ends the "
    "router at once.",
    "SIGHUP": "Reload the file of settings, files of keys and of TLS, and reopen the record log. Without "
    "such files, the router ends.",
}
EXAMPLES = {
    "vllm-router --worker-urls http://a:8000 http://b:8000 --policy consistent_hash": "Route sessions to two "
    "workers.",
    "vllm-router --config router.yaml --port 8080": "Read settings from a file, with another port.",
    "vllm-router --config router.yaml --reuse-port": "Start beside a router that has the same port, which "
    "may then be stopped. No connection is refused.",
    "vllm-router replay trace.jsonl --policy all": "Find the policy that serves recorded traffic best.",
}


def render() -> str:
    """The whole page."""
    page = HEAD.lstrip()
    built = [
        flag for flag in FLAGS.values() if flag.on_command_line and not flag.not_built and not flag.no_effect
    ]
    for group in dict.fromkeys(flag.group for flag in built):
        page += f".SS {_escaped(group)}\n" + "".join(_option(flag) for flag in built if flag.group == group)
    page += ".SS Accepted without effect\nScripts written for vllm\\-project/router use these.\n"
    page += "".join(
        _entry(flag.spelling, f"{flag.no_effect[0].upper()}{flag.no_effect[1:]}.")
        for flag in FLAGS.values()
        if flag.on_command_line and flag.no_effect
    )
    page += _section(
        "COMMANDS",
        [
            (command.name, f"{command.what}. See vllm-router {command.name} --help.")
            for command in commands()
            if command.name
        ],
    )
    page += _section("EXIT STATUS", EXIT_STATUS.items())
    prefixed = [
        (f"{prefix}{name.upper()}", f"Stands in for {FLAGS[name].spelling}.")
        for name in environment.NAMES
        for prefix in environment._PREFIXES
    ]
    page += _section("ENVIRONMENT", [*ENVIRONMENT.items(), *prefixed])
    page += _section("FILES", FILES.items())
    page += _section("SIGNALS", SIGNALS.items())
    page += _section("EXAMPLES", EXAMPLES.items())
    return page + ".SH SEE ALSO\n.BR systemctl (1),\n.BR journalctl (1)\n"


def _section(title: str, entries: Iterable[tuple[str, str]]) -> str:
    return f".SH {title}\n" + "".join(_entry(term, text) for term, text in entries)


def _entry(term: str, text: str, value: str = "") -> str:
    shown = rf"\fB{_escaped(term)}\fR" + (rf" \fI{_escaped(value)}\fR" if value else "")
    return f".TP\n{shown}\n{_lines(text)}"


def _option(flag: Flag) -> str:
    several = " ..." if flag.kind.nargs in ("*", "+") else ""
    value = "" if isinstance(flag.kind, Switch) else flag.kind.metavar + several
    text = plain_help(flag)
    if flag.policies:
        text += f" Read by {' and '.join(flag.policies)}."
    return _entry(flag.spelling, text, value)


def _lines(text: str) -> str:
    """A sentence on a line, as roff wants it."""
    return "".join(f"{_escaped(sentence)}\n" for sentence in text.replace(". ", ".\n").split("\n"))


def _escaped(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("…", "...")
    return rf"\&{text}" if text.startswith((".", "'")) else text


if __name__ == "__main__":
    print(render(), end="")
