"""Flag: one setting, written down once and used in four places.

    a field of the table ──▶ Flag ─┬─▶ command line   --virtual-nodes 200
                                   ├─▶ YAML           virtual_nodes: 200
                                   ├─▶ Python         Router(virtual_nodes=200)
                                   └─▶ document       docs/reference/cli.md

A `Flag` knows its spellings, its default, what its values look like (a `Kind`), what to say when a value does
not fit, and whether its function is built yet. Nothing here knows a single flag: `table.py` and
`reference_flags.py` hold them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from vllm_router._messages import LONGEST_SHOWN_VALUE, quoted, show
from vllm_router._secrets import described, is_open_url, shown_urls, without_query
from vllm_router._version import __version__
from vllm_router.settings.kinds import Choice, Kind, NotYet, Number, Raw, RequestPath, Switch, Text, Unfit

# What a change of a setting needs while the router runs.
LIVE = {
    "request": "in force at once: requests that begin from now on see it, those under way keep theirs",
    "new": "in force for what is made from now on",
    "restart": "the router has to be started again, and a file that changes it is not taken",
}


@dataclasses.dataclass(frozen=True)
class NotBuilt:
    """A function that is known and wanted but not there yet: its name, and what happens today."""

    function: str
    today: str


@dataclasses.dataclass(frozen=True)
class Alias:
    """One more spelling. With `kind` its values look different; with `meaning` they are translated."""

    name: str
    kind: Kind | None = None
    meaning: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    former: bool = False  # the name of an earlier release: accepted with a warning, not shown by --help
    # Of a switch that is on: values of other fields, where these are not given themselves.
    selects: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class _Same:
    """`cli_default` left out."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """One setting; see the head of this file."""

    kind: Kind
    what: str  # opens the help. Noun phrase that completes "it is …" in messages; of a switch, what it does
    group: str
    default: Any = None  # of the dataclass field
    more: str = ""  # further sentences of help
    spelled: str = ""  # on the command line, when it is not the field's name
    aliases: tuple[str | Alias, ...] = ()
    unset: str = ""  # what a default of None means, in messages
    cli_default: Any = _Same  # on the command line, when it is not the field's default
    scope: str = ""  # "routing": an option of Router; "server": an option of the server
    policies: tuple[str, ...] = ()  # that read it; empty: those that the core names, or all
    not_built: NotBuilt | None = None
    no_effect: str = ""  # why it is accepted and does nothing
    on_command_line: bool = True
    live: str = ""  # what a reload of the file of settings does with another value; see LIVE
    secret: bool = False  # no message shows its value
    urls: bool = False  # its value is shown without user names, passwords and queries
    field: str = ""  # name in RouterArgs, YAML and Python

    @property
    def spelling(self) -> str:
        """`--virtual-nodes`."""
        return "--" + (self.spelled or self.field).replace("_", "-")

    @property
    def spellings(self) -> list[str]:
        """Every name on the command line without its dashes, the ordinary one first."""
        names = [self.spelling[2:], *(alias.name.replace("_", "-") for alias in self.all_aliases)]
        return list(dict.fromkeys(names))

    @property
    def option_strings(self) -> list[str]:
        """Every name on the command line, with `-` and with `_`."""
        return ["--" + name for dashed in self.spellings for name in (dashed, dashed.replace("-", "_"))]

    @property
    def can_be_denied(self) -> bool:
        """Whether there is a `--no-…` form: a file may say yes, and the command line wins."""
        return isinstance(self.kind, Switch) and not self.not_built and not self.no_effect

    @property
    def dest(self) -> str:
        """Attribute of the argparse namespace, without prefix."""
        return self.spelled.replace("-", "_") if isinstance(self.kind, Raw) and self.spelled else self.field

    @property
    def command_default(self) -> Any:
        """Its value when the command line does not name it."""
        return self.default if self.cli_default is _Same else self.cli_default

    @property
    def all_aliases(self) -> list[Alias]:
        """Every further spelling."""
        return [Alias(alias) if isinstance(alias, str) else alias for alias in self.aliases]

    @property
    def former_names(self) -> list[Alias]:
        """Names of an earlier release, which are accepted until the next minor release."""
        return [alias for alias in self.all_aliases if alias.former]

    def shown(self, value: object) -> str:
        """A value of this flag for a message: without what may be secret in it."""
        if self.secret:
            return described(value)
        if isinstance(self.kind, RequestPath) and isinstance(value, str):
            return show(without_query(value))
        if not self.urls or value is None or value in ([], ()):
            return show(value)
        words = _texts_of(value)
        if words is None:
            return show(value) if isinstance(value, (bool, int, float)) else described(value)
        text = shown_urls(" ".join(words))
        return (text if len(text) <= LONGEST_SHOWN_VALUE else described(value)) or show(value)

    def complaint(self, value: object, unfit: Unfit, alias: Alias | None = None) -> str:
        """What to tell a person: the thing, the value, the limit, the remedy."""
        if isinstance(unfit, NotYet):
            given = f"{self.spelling} {self.shown(value)}"
            return f"{given} is not implemented in vllm-router {__version__} yet; {unfit}"
        if alias and alias.kind:
            return f"--{alias.name} is {self.shown(value)}; it must be {str(unfit) or alias.kind.limits}"
        default = self.unset or show(self.command_default)
        limits = str(unfit) or f"{self.kind.limits} (default {default})"
        if unfit.word is not None and self._may_show(unfit.word, value):
            limits += f", and {quoted(unfit.word)} {unfit.verdict}"
        if isinstance(self.kind, Text) and not isinstance(value, (str, list, dict, type(None))):
            limits += "; in YAML, put it in quotes"
        elif isinstance(value, bool) and not isinstance(self.kind, (Text, Switch)):
            words = "on, yes and true" if value else "off, no and false"
            limits += f"; YAML reads {words} without quotes as {show(value)}"
        what = f"a switch ({self.what})" if isinstance(self.kind, Switch) else self.what
        shown = f"the text {quoted(value)}" if self._is_number(value) else self.shown(value)
        return f"{self.field} is {shown}; it is {what} and must be {limits}"

    def _is_number(self, value: object) -> bool:
        """Whether it is a text that would fit without its quotes."""
        try:
            return isinstance(self.kind, Number) and self.kind.from_config(value) != value
        except Unfit:
            return False

    def _may_show(self, word: str, value: object) -> bool:
        # A password with a comma in it has been parted there, so the whole value has to be harmless.
        whole = " ".join(_texts_of(value) or ["@"])
        return not self.urls or all(map(is_open_url, re.split(r"[\s,]+", f"{word} {whole}".strip())))

    def check(self, value: object) -> Any:
        """The value in its canonical form, whether or not the function is built.

        Raises:
            ValueError: it does not fit; the sentence names the thing, the value, the limit and the remedy.
        """
        if value is None and self.default is None:
            return None
        try:
            return self.kind.check(value)
        except Unfit as unfit:
            raise ValueError(self.complaint(value, unfit)) from None

    def is_default(self, value: object) -> bool:
        """Whether the value asks for nothing beyond the default."""
        nothing: tuple[Any, ...] = (None, [], {}, ())
        return value in (self.default, self.command_default) or (value in nothing and self.default in nothing)

    def check_built(self, value: object) -> None:
        """Refuse to pretend: raises ValueError when the value asks for a function that is not there yet."""
        if self.not_built is None or self.is_default(value):
            return
        given = self.spelling if value is True else f"{self.spelling} {self.shown(value)}"
        remedy = "remove it"
        if self.default not in (None, False, [], {}):
            remedy += f" or leave it at its default, {show(self.default)}"
        raise ValueError(
            f"{given} is not implemented in vllm-router {__version__} yet ({self.not_built.function}): "
            f"{self.not_built.today}; {remedy}"
        )


def _texts_of(value: object) -> list[str] | None:
    """The texts in a value of URLs: one, several, rows of them; None when there is anything else in it."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, (list, tuple)):
        return None
    texts: list[str] = []
    for item in value:
        row = item if isinstance(item, (list, tuple)) else [item]
        for word in row:
            if word is not None and (isinstance(word, bool) or not isinstance(word, (str, int))):
                return None
            texts += [] if word is None else [str(word)]
    return texts


def option(default: Any, kind: Kind, what: str, *, group: str, **details: Any) -> Any:
    """A dataclass field that carries its Flag; takes the fields of Flag by name."""
    flag = Flag(kind=kind, what=what, group=group, default=default, **details)
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata={"flag": flag})
    return dataclasses.field(default=default, metadata={"flag": flag}, repr=not flag.secret)


def flags_of(cls: Any) -> dict[str, Flag]:
    """The flags of a dataclass made of option()s, by field name, in their order."""
    from vllm_router.settings.policies import (
        readers_of,
    )  # of the core, which `vllm-router probe` does without

    return {
        field.name: dataclasses.replace(
            flag := field.metadata["flag"],
            field=field.name,
            policies=flag.policies or readers_of(field.name),
        )
        for field in dataclasses.fields(cls)
    }


def plain_help(flag: Flag) -> str:
    """What it is, what more there is to know, how else it is spelled, its default."""
    sentences = [flag.what[0].upper() + flag.what[1:] + "."]
    if isinstance(flag.kind, Choice) and any(name not in flag.more for name in flag.kind.names):
        sentences.append(f"One of {', '.join(flag.kind.names)}.")
    if flag.more:
        sentences.append(flag.more)
    if flag.no_effect:
        sentences.append(f"{flag.no_effect[0].upper()}{flag.no_effect[1:]}.")
    also = [f"--{alias.name}".replace("_", "-") for alias in flag.all_aliases if not alias.former]
    if flag.can_be_denied:
        also.append("--no-" + flag.spelling[2:])
    if also:
        sentences.append(f"Also {', '.join(also)}.")
    default = flag.command_default
    if not (isinstance(flag.kind, Switch) and default is False) and default not in (None, [], {}):
        zero = flag.kind.zero if isinstance(flag.kind, Number) and default == 0 else ""
        # A list in whole, however long: it is ours, and no prompt.
        shown = " ".join(map(show, default)) if isinstance(default, list) else show(default)
        sentences.append(f"Default: {'on' if default is True else shown}{zero and f' ({zero})'}.")
    return " ".join(sentences)
