"""Flags on a command line: an argparse parser with errors for people, and how a `Flag` is added to one.

parser = CommandParser(prog="vllm-router demo", allow_abbrev=False)
add_flag(parser, flag, prefix="")
parser.parse_command(["--port", "8080"])
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from vllm_router._messages import did_you_mean
from vllm_router._secrets import without_userinfo
from vllm_router.settings.flag import Alias, Flag, plain_help
from vllm_router.settings.kinds import Switch, Unfit


class CommandParser(argparse.ArgumentParser):
    """argparse with errors for people: one sentence, the nearest name, exit status 2."""

    def parse_command(self, args: Sequence[str] | None) -> argparse.Namespace:
        """As parse_args(), with a better response to a name that is not known."""
        args = sys.argv[1:] if args is None else args
        parsed, strangers = self.parse_known_args(args)
        if strangers:
            self.error(self.unknown(strangers, args))
        return parsed

    def unknown(self, strangers: Sequence[str], args: Sequence[str]) -> str:  # noqa: ARG002
        """A sentence about the words of `args` that are no flags and belong to none."""
        name = next((word for word in strangers if word.startswith("-")), strangers[0]).split("=", 1)[0]
        known = [spelling for action in self._actions for spelling in action.option_strings]
        name = without_userinfo(name)
        return f"{name} is not a flag of {self.prog}" + did_you_mean(name, known, "; see --help")

    def error(self, message: str) -> NoReturn:
        """End the process with one line on stderr."""
        self.exit(2, f"{self.prog}: error: {message}\n")


GIVEN = "_router_flags_given"  # in a namespace: fields that the command line or the file names
FORMER_GIVEN = "_router_former_flags_given"  # in a namespace: former spellings given, with the present ones


class _Store(argparse.Action):
    """Checks a value where it is read, and lets a repeated list grow; a switch has its value in `const`."""

    def __init__(
        self, *, flag: Flag, alias: Alias | None = None, present: str = "", **arguments: Any
    ) -> None:
        self.flag = flag
        self.alias = alias
        self.present = present  # of a former spelling: the one to use instead
        self.kind = (alias and alias.kind) or flag.kind
        self.meaning = alias.meaning if alias else {}
        super().__init__(nargs=self.kind.nargs, metavar=self.kind.metavar, **arguments)

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, self._read(namespace, values) if self.const is None else self.const)
        setattr(namespace, GIVEN, getattr(namespace, GIVEN, frozenset()) | {self.flag.field})
        for field, value in (self.alias.selects if self.alias and self.const else {}).items():
            if field not in getattr(namespace, GIVEN):
                setattr(namespace, self.dest.removesuffix(self.flag.dest) + field, value)
        if self.present:
            former = getattr(namespace, FORMER_GIVEN, {})
            setattr(namespace, FORMER_GIVEN, former | {option_string: self.present})

    def _read(self, namespace: argparse.Namespace, values: str | Sequence[Any] | None) -> Any:
        tokens = [values] if isinstance(values, str) else list(values or [])
        if not tokens and self.nargs is None:
            tokens = ["--"]  # `--api-key=--`: argparse before Python 3.13 drops such a value
        try:
            value = self.kind.parse(tokens)
        except Unfit as unfit:
            raise argparse.ArgumentError(
                None, self.flag.complaint(" ".join(tokens), unfit, self.alias)
            ) from None
        if self.meaning:
            value = self.meaning[value]
        # The default belongs to the parser: an explicit list takes its place, and later ones are added to it.
        before = getattr(namespace, self.dest, None)
        return [*(before or ()), *value] if self.kind.accumulates and before is not self.default else value


def add_flag(parser: Any, flag: Flag, prefix: str) -> None:
    """Add a flag with all its spellings to an argparse parser or group. `prefix` is "" or "router"."""
    default = flag.command_default
    dest = f"{prefix}_{flag.dest}" if prefix else flag.dest
    dashed_prefix = f"--{prefix}-" if prefix else "--"

    def spellings(name: str, no: str = "") -> list[str]:
        dashed = dashed_prefix + no + name.replace("_", "-")
        return list(dict.fromkeys([dashed, "--" + dashed[2:].replace("-", "_")]))

    def add(names: list[str], alias: Alias | None, help_text: str, value: bool = True) -> None:
        kind = (alias and alias.kind) or flag.kind
        present = ""
        if alias is not None and alias.former:
            present = spellings(flag.spelled or flag.field, "" if value else "no-")[0]
        parser.add_argument(
            *names,
            action=_Store,
            flag=flag,
            alias=alias,
            present=present,
            const=value if isinstance(kind, Switch) else None,
            dest=dest,
            default=default,
            help=help_text,
        )

    dashed, *others = spellings(flag.spelled or flag.field)
    add([dashed], None, argparse.SUPPRESS if flag.not_built else help_of(flag))
    if others:
        add(others, None, argparse.SUPPRESS)
    for alias in flag.all_aliases:
        add(spellings(alias.name), alias, argparse.SUPPRESS)
    if flag.can_be_denied:
        add(spellings(flag.spelled or flag.field, "no-"), None, argparse.SUPPRESS, value=False)
        for alias in flag.former_names:
            add(spellings(alias.name, "no-"), alias, argparse.SUPPRESS, value=False)


def help_of(flag: Flag) -> str:
    """The help text of a flag, escaped for argparse."""
    return plain_help(flag).replace("%", "%%")
