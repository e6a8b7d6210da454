"""Flag: one setting, written down once and used in four places.

    a field of RouterArgs ──▶ Flag ─┬─▶ command line   --virtual-nodes 200
                                    ├─▶ YAML           virtual_nodes: 200
                                    ├─▶ Python         Router(virtual_nodes=200)
                                    └─▶ document       docs/reference/cli.md

A `Flag` knows its spellings, its default, what its values look like (a `Kind`), what to say when a value does
not fit, and whether its function is built yet. `router_args.py` holds the table; nothing here knows a single
flag.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import math
import numbers
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, NoReturn

from vllm_router._secrets import (
    SECRET_NAME,
    described,
    is_open_url,
    shown_urls,
    without_userinfo,
)
from vllm_router._version import __version__


class Unfit(Exception):  # noqa: N818, it never leaves this module
    """A value does not fit. The text completes "it must be …", where the kind knows more than its limits.

    `word` is the one of several that does not fit. It stands apart from the text since it may hold a secret;
    `verdict` follows it in the message.
    """

    def __init__(self, text: str = "", word: str | None = None, verdict: str = "is not one") -> None:
        super().__init__(text)
        self.word = word
        self.verdict = verdict


class NotYet(Unfit):
    """A value is right but what it names is not implemented. The text says what to do."""


# Longer values are not shown in messages: they may be prompts. cpp/bindings/arguments.h has the same limit.
LONGEST_SHOWN_VALUE = 80


def quoted(value: object) -> str:
    """repr() for a message; of a value that is longer than 80 characters only what it is, and how long."""
    length = len(value) if isinstance(value, Sized) else 0
    if length <= LONGEST_SHOWN_VALUE:
        text = without_userinfo(repr(value))
        if len(text) <= LONGEST_SHOWN_VALUE:
            return text
    return _too_long(value, length)


def _too_long(value: object, length: int) -> str:
    kind = type(value).__name__
    unit = "characters" if isinstance(value, (str, bytes)) else "items"
    return f"a {kind} of {length} {unit}" if isinstance(value, Sized) else f"a {kind}"


# Flags share words, so those of other routers are like some flag here that means another thing: --redis-url
# is like --worker-urls (0.67), --ca-cert-path like --tls-cert-path (0.80). Typing errors are above this.
FLAG_SIMILARITY = 0.82


def nearest_name(name: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """The known name most like `name`, '-' and '_' being the same; None when nothing is like it."""
    by_plain = {candidate.replace("-", "_"): candidate for candidate in known}
    close = difflib.get_close_matches(name.replace("-", "_").lower(), by_plain, n=1, cutoff=similarity)
    return by_plain[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", similarity: float = 0.6) -> str:
    """`; did you mean X?`, or `otherwise`."""
    nearest = nearest_name(name, known, similarity)
    return f"; did you mean {nearest}?" if nearest else otherwise


class CommandParser(argparse.ArgumentParser):
    """argparse with errors for people: one sentence, the nearest name, exit status 2."""

    def parse_command(self, args: Sequence[str] | None) -> argparse.Namespace:
        """As parse_args(), with a better answer to a name that is not known."""
        parsed, strangers = self.parse_known_args(args)
        if strangers:
            name = next((word for word in strangers if word.startswith("-")), strangers[0]).split("=", 1)[0]
            known = [spelling for action in self._actions for spelling in action.option_strings]
            name = without_userinfo(name)
            self.error(f"{name} is not a flag of {self.prog}" + did_you_mean(name, known, "; see --help"))
        return parsed

    def error(self, message: str) -> NoReturn:
        """End the process with one line on stderr."""
        self.exit(2, f"{self.prog}: error: {message}\n")


class Kind:
    """What the values of a flag look like: on the command line, in YAML, in Python."""

    metavar: str = ""
    nargs: str | int | None = None  # as argparse means it
    accumulates: bool = False  # a repeated flag adds to the list instead of replacing it

    @property
    def limits(self) -> str:
        """Completes "it must be …"."""
        raise NotImplementedError

    def parse(self, tokens: Sequence[str]) -> Any:
        """The meaning of one appearance on the command line; raises Unfit."""
        return self.check(tokens[0])

    def from_config(self, value: object) -> object:
        """A value of a YAML file in the form that check() takes."""
        return value

    def check(self, value: object) -> Any:
        """The value in its one canonical form; raises Unfit."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Number(Kind):
    """A number between `low` and `high`; 0 too when `zero` says what it means."""

    low: float = 0
    high: float | None = None
    zero: str = ""
    whole: bool = True
    seconds: bool = False
    metavar: str = "N"

    @property
    def limits(self) -> str:
        name = "a whole number" if self.whole else "a number of seconds" if self.seconds else "a number"
        span = f"at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"
        return f"0 ({self.zero}) or {name} {span}" if self.zero else f"{name} {span}"

    def parse(self, tokens: Sequence[str]) -> Any:
        text = tokens[0]
        # int() would also read "1_000", blanks and digits of other scripts; a typing error should stay one.
        if re.fullmatch(r"[+-]?[0-9]+", text):
            return self.check(int(text))
        if not self.whole and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return self.check(float(text))
        raise Unfit

    def check(self, value: object) -> Any:
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            number: float = int(value)
        elif isinstance(value, numbers.Real) and not isinstance(value, bool) and not self.whole:
            number = float(value)
        else:
            raise Unfit
        if self.zero and number == 0:
            return number
        if not math.isfinite(number) or number < self.low or (self.high is not None and number > self.high):
            raise Unfit
        return number


@dataclasses.dataclass(frozen=True)
class NumberOr(Number):
    """A number, or one word that stands for no number."""

    word: str = "auto"

    @property
    def limits(self) -> str:
        return f"{self.word} or {super().limits}"

    def parse(self, tokens: Sequence[str]) -> Any:
        return self.check(tokens[0]) if tokens[0].strip().lower() == self.word else super().parse(tokens)

    def check(self, value: object) -> Any:
        if isinstance(value, str) and value.strip().lower() == self.word:
            return self.word
        return super().check(value)


def Seconds(zero: str = "", low: float = 0.001) -> Number:  # noqa: N802, reads as the kinds beside it
    """A duration: whole or fractional seconds, up to a year. `low=0` lets 0 mean just that."""
    return Number(low=low, high=31_536_000, zero=zero, whole=False, seconds=True, metavar="SECS")


@dataclasses.dataclass(frozen=True)
class Text(Kind):
    """Any text but the empty one."""

    metavar: str = "TEXT"

    @property
    def limits(self) -> str:
        return "a text that is not empty"

    def check(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise Unfit
        if "\0" in value:
            raise Unfit("a text without NUL characters, which no file, name or address has")
        return value


def control_character(text: str) -> tuple[int, str] | None:
    """Where the first control character is, from 1, and what it is, such as a line break; None without any.

    A lone surrogate, which stands for a byte that is no UTF-8, counts.
    """
    for position, character in enumerate(text, 1):
        category = unicodedata.category(character)
        if category == "Cc":
            kind = "a line break" if character in "\r\n" else "a control character"
            return position, f"{kind} ({character.encode('unicode_escape').decode()})"
        if category == "Cs":
            return position, "a byte that is not UTF-8"
    return None


@dataclasses.dataclass(frozen=True)
class HeaderText(Text):
    """Text that goes into a header as it is, so that nothing in it may end the header."""

    @property
    def limits(self) -> str:
        return "a text that is not empty, without line breaks and other control characters"

    def check(self, value: object) -> str:
        text = super().check(value)
        found = control_character(text)
        if found is not None:
            position, what = found
            raise Unfit(
                f"a text without control characters, and it has {what} at position {position}, which would "
                "end the header in which it is sent: remove it (in YAML write the text in quotes on one "
                "line, not as a block after |; in a shell $(cat FILE) leaves out the line break at the "
                "end)"
            )
        if text != text.strip():
            position = 1 if text != text.lstrip() else len(text)
            raise Unfit(
                f"a text without leading or trailing blanks, and it has one at position {position}: remove it"
            )
        return text


@dataclasses.dataclass(frozen=True)
class RequestPath(Text):
    """A path as it stands in a request line, with a query or without."""

    metavar: str = "PATH"

    @property
    def limits(self) -> str:
        return "a path such as /health"

    def check(self, value: object) -> str:
        text = super().check(value)
        position = misfit_in_target(text)
        if position is not None:
            raise Unfit(
                "a path of visible ASCII characters without #, since it stands in a request line, and "
                f"the character at position {position} is none of these: remove it or write it "
                "percent-encoded"
            )
        return text


def misfit_in_target(text: str) -> int | None:
    """Where the first character is, from 1, that cannot stand in a request line's target; None: nowhere."""
    return next(
        (at for at, character in enumerate(text, 1) if not "!" <= character <= "~" or character == "#"), None
    )


def header_name(text: str) -> str:
    """A header's name, as HTTP has it; raises Unfit."""
    for position, character in enumerate(text, 1):
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]", character):
            raise Unfit(
                "names of headers such as X-Session-ID (letters, digits and !#$%&'*+-.^_`|~), and one of "
                f"{len(text)} characters has another at position {position}; remove it"
            )
    return text


@dataclasses.dataclass(frozen=True)
class Switch(Kind):
    """On or off; on the command line the flag alone."""

    @property
    def limits(self) -> str:
        return "true or false"

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise Unfit
        return value


@dataclasses.dataclass(frozen=True)
class Choice(Kind):
    """One of some names. Case does not matter, and `-` is `_`.

    `later` holds names that are planned but not implemented, `foreign` those that other routers know, each
    with what to do.
    """

    names: tuple[str, ...]
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    later: Mapping[str, str] = dataclasses.field(default_factory=dict)
    foreign: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metavar: str = "NAME"

    @property
    def limits(self) -> str:
        return "one of " + ", ".join(self.names)

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise Unfit
        name = value.strip().lower().replace("-", "_")
        name = self.aliases.get(name, name)
        if name in self.names:
            return name
        if name in self.later:
            raise NotYet(self.later[name])
        if name in self.foreign:
            raise Unfit(f"{self.limits}; {name} itself is not offered, {self.foreign[name]}")
        raise Unfit(self.limits + did_you_mean(name, [*self.names, *self.aliases, *self.later]))


@dataclasses.dataclass(frozen=True)
class Words(Kind):
    """A list of words, separated by blanks or commas, in one flag or in several."""

    metavar: str = "NAME"
    commas: bool = True
    each: Callable[[str], str] | None = None  # canonical form of one word; raises Unfit
    nargs: str | int | None = "*"
    accumulates: bool = True

    @property
    def limits(self) -> str:
        return "a list of texts"

    def parse(self, tokens: Sequence[str]) -> list[str]:
        pieces = [piece for token in tokens for piece in (token.split(",") if self.commas else [token])]
        return self.check([piece.strip() for piece in pieces if piece.strip()])

    def from_config(self, value: object) -> object:
        return self.parse(value.split()) if isinstance(value, str) else value

    def check(self, value: object) -> list[str]:
        # A bare string would be taken letter by letter: the classic mistake, so it is named.
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise Unfit
        words = []
        for word in value:
            if not isinstance(word, str) or not word.strip():
                raise Unfit
            words.append(self.each(word.strip()) if self.each else word)
        return words


@dataclasses.dataclass(frozen=True)
class Raw(Kind):
    """Words that RouterArgs itself makes sense of (`_parse_selector` and its like), kept as they were given.

    `rows`: each appearance is one row of words (`--prefill URL PORT`). `split`: each word is a row of its
    own.
    """

    metavar: str = "WORD"
    nargs: str | int | None = "+"
    rows: bool = False
    split: bool = False
    accumulates: bool = True

    @property
    def limits(self) -> str:
        return "a list"

    def parse(self, tokens: Sequence[str]) -> list[Any]:
        if self.split:
            return [[word] for token in tokens for word in token.split(",") if word]
        return [list(tokens)] if self.rows else list(tokens)

    def check(self, value: object) -> Any:
        return value


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
    policies: tuple[str, ...] = ()  # the policies that read it; empty: all, or none of their business
    not_built: NotBuilt | None = None
    satisfied: tuple[Any, ...] = ()  # values beside the default that ask for what happens anyway
    no_effect: str = ""  # why it is accepted and does nothing
    on_command_line: bool = True
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
        if self.secret and not isinstance(value, (str, list, dict, type(None))):
            limits += "; in YAML, put it in quotes"
        what = f"a switch ({self.what})" if isinstance(self.kind, Switch) else self.what
        return f"{self.field} is {self.shown(value)}; it is {what} and must be {limits}"

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
        if self.not_built is None or self.is_default(value) or value in self.satisfied:
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


_DEEPEST_SHOWN = 3


def show(value: object) -> str:
    """A value as a person would write it in a sentence; a long one as `quoted()` does."""
    return _show(value, 0)


def _show(value: object, depth: int) -> str:
    if isinstance(value, Sized) and len(value) > LONGEST_SHOWN_VALUE:
        return _too_long(value, len(value))
    text = without_userinfo(_shown(value, depth))
    if len(text) <= LONGEST_SHOWN_VALUE:
        return text
    return _too_long(value, len(value)) if isinstance(value, Sized) else quoted(value)


def _shown(value: object, depth: int) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)) and depth >= _DEEPEST_SHOWN:
        return _too_long(value, len(value))
    if isinstance(value, tuple):  # a row, whose last words may be left out
        value = [item for item in value if item is not None]
    if isinstance(value, list):
        return " ".join(_show(item, depth + 1) for item in value) or "empty"
    if isinstance(value, dict):
        return " ".join(f"{key}={_member(key, item, depth)}" for key, item in value.items()) or "empty"
    if not isinstance(value, str):
        return str(value)
    return repr(value) if not value.strip() or " " in value or not value.isprintable() else value


def _member(key: object, item: object, depth: int) -> str:
    return "..." if SECRET_NAME.search(str(key)) else _show(item, depth + 1)


def option(default: Any, kind: Kind, what: str, *, group: str, **details: Any) -> Any:
    """A dataclass field that carries its Flag; takes the fields of Flag by name."""
    flag = Flag(kind=kind, what=what, group=group, default=default, **details)
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata={"flag": flag})
    return dataclasses.field(default=default, metadata={"flag": flag}, repr=not flag.secret)


def flags_of(cls: Any) -> dict[str, Flag]:
    """The flags of a dataclass made of option()s, by field name, in their order."""
    return {
        field.name: dataclasses.replace(field.metadata["flag"], field=field.name)
        for field in dataclasses.fields(cls)
    }


GIVEN = "_router_flags_given"  # in a namespace: fields that the command line or the file names
FORMER_GIVEN = "_router_former_flags_given"  # in a namespace: former spellings given, with the present ones


class _Store(argparse.Action):
    """Checks a value where it is read, and lets a repeated list grow."""

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
        if self.kind.accumulates and before is not self.default:
            value = [*(before or ()), *value]
        setattr(namespace, self.dest, value)
        _note_given(namespace, self.flag, option_string, self.present)


class _StoreSwitch(argparse.Action):
    """Turns a switch on, or off with `--no-…`."""

    def __init__(self, *, flag: Flag, present: str = "", **arguments: Any) -> None:
        self.flag = flag
        self.present = present
        super().__init__(nargs=0, **arguments)

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: object,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, self.const)
        _note_given(namespace, self.flag, option_string, self.present)


def _note_given(namespace: argparse.Namespace, flag: Flag, option_string: str | None, present: str) -> None:
    setattr(namespace, GIVEN, getattr(namespace, GIVEN, frozenset()) | {flag.field})
    if present:
        setattr(namespace, FORMER_GIVEN, getattr(namespace, FORMER_GIVEN, {}) | {option_string: present})


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
        common = {"dest": dest, "flag": flag, "present": present, "default": default, "help": help_text}
        if isinstance(kind, Switch):
            parser.add_argument(*names, action=_StoreSwitch, const=value, **common)
        else:
            parser.add_argument(*names, action=_Store, alias=alias, **common)

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
    if not (isinstance(flag.kind, Switch) and default is False) and default not in (None, []):
        sentences.append(f"Default: {'on' if default is True else show(default)}.")
    return " ".join(sentences)
