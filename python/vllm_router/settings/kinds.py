"""Kind: what the values of a setting look like, on the command line, in YAML and in Python.

    Number(1, 65536).parse(["200"])      200, from the command line
    Number(1, 65536).check(200)          200, from YAML and Python
    Number(1, 65536).check(0)            raises Unfit
    Number(1, 65536).limits              "a whole number between 1 and 65536"

Nothing here knows a single setting. A kind is immutable.
"""

from __future__ import annotations

# ruff: noqa: D102, since Kind says what its methods mean
import dataclasses
import ipaddress
import json
import math
import numbers
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vllm_router._messages import did_you_mean


class Unfit(Exception):  # noqa: N818, it never leaves the settings
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

    def from_config(self, value: object) -> object:
        """As on the command line, where it is in quotes: templates of YAML quote what they fill in."""
        return self.parse([value]) if isinstance(value, str) else value

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


@dataclasses.dataclass(frozen=True)
class RedisUrl(Text):
    """Where a Redis or Valkey is. Its password never comes from the command line, which other users see."""

    metavar: str = "URL"
    password_flag: str = "--redis-password-file"

    @property
    def limits(self) -> str:
        return "a URL like redis://host:6379/0, or rediss://host for TLS"

    def parse(self, tokens: Sequence[str]) -> str:
        url = self.check(tokens[0])
        if ":" in url.partition("://")[2].rpartition("@")[0]:
            raise Unfit(f"a URL without a password on the command line; set {self.password_flag}")
        return url

    def check(self, value: object) -> str:
        url = super().check(value)
        match = re.fullmatch(
            r"(?:redis|valkey)s?://(?:[!-.0-?A-~]*@)?(?:[0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\])"
            r"(?::([0-9]{1,5}))?(?:/([0-9]{0,5}))?",
            url,
            re.IGNORECASE,
        )
        if match is None:
            raise Unfit
        if match[1] and not 1 <= int(match[1]) <= 65_535:
            raise Unfit("a URL with a port between 1 and 65535")
        if int(match[2] or 0) > MAX_REDIS_DATABASE:
            raise Unfit(f"a URL with a database between 0 and {MAX_REDIS_DATABASE}")
        return url


@dataclasses.dataclass(frozen=True)
class CollectorUrl(Text):
    """Where a collector of OpenTelemetry takes OTLP over HTTP; without a scheme, http:// is meant."""

    metavar: str = "URL"

    @property
    def limits(self) -> str:
        return "the URL of a collector's HTTP port, such as http://collector:4318, or https:// for TLS"

    def check(self, value: object) -> str:
        url = super().check(value)
        match = re.fullmatch(
            r"(?:(https?|grpcs?)://)?([0-9A-Za-z._-]{1,253}|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*\])"
            r"(?::([0-9]{1,5}))?(/[!-~]*)?",
            url,
            re.IGNORECASE,
        )
        if match is None or not 1 <= int(match[3] or 1) <= 65_535 or set(match[4] or "") & set("?#"):
            raise Unfit
        what = "port of" if match[3] == "4317" else "scheme of" if (match[1] or "").lower()[:1] == "g" else ""
        if what:
            raise Unfit(
                f"the URL of a collector's HTTP port, usually http://{match[2]}:4318, and this is the {what} "
                "OTLP over gRPC"
            )
        return url


@dataclasses.dataclass(frozen=True)
class Name(Text):
    """A name that may be part of keys and labels."""

    metavar: str = "NAME"

    @property
    def limits(self) -> str:
        return "1 to 64 letters, digits, dots, hyphens and underscores"

    def check(self, value: object) -> str:
        name = super().check(value)
        if re.fullmatch(r"[0-9A-Za-z_.-]{1,64}", name) is None:
            raise Unfit
        return name


@dataclasses.dataclass(frozen=True)
class NameServer(Text):
    """Where a DNS server is: an IP address, with or without a port."""

    metavar: str = "IP[:PORT]"

    @property
    def limits(self) -> str:
        return "an IP address, with or without a port, such as 127.0.0.1:8600 or [::1]:53"

    def check(self, value: object) -> str:
        text = super().check(value)
        match = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::([0-9]{1,5}))?|([0-9.]+):([0-9]{1,5})", text)
        host, port = (match[1] or match[3], match[2] or match[4]) if match else (text, None)
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            raise Unfit from None
        if text[0] == "[" and address.version != 6:
            raise Unfit
        if port is not None and not 1 <= int(port) <= 65_535:
            raise Unfit("an IP address with a port between 1 and 65535")
        return text


@dataclasses.dataclass(frozen=True)
class ListenAddress(Text):
    """Where the router listens: an IP address of its own, or all, and a port."""

    metavar: str = "HOST:PORT"

    @property
    def limits(self) -> str:
        return (
            "HOST:PORT, where the host is an IP address of this machine or * for all, such as 0.0.0.0:30001"
        )

    def check(self, value: object) -> str:
        text = super().check(value)
        host, _, port = text.rpartition(":")
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
            raise Unfit
        if host in ("*", "localhost"):
            return text
        try:
            version = ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).version
        except ValueError:
            raise Unfit from None
        if (version == 6) != host.startswith("[") or "%" in host:
            raise Unfit
        return text


MAX_REDIS_DATABASE = 16_383  # as cpp/redis/redis_url.h


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
class JsonObject(Text):
    """A JSON object as text; in YAML and Python also a mapping."""

    metavar: str = "JSON"

    @property
    def limits(self) -> str:
        return 'a JSON object such as {"page_size": 64}'

    def check(self, value: object) -> str:
        try:
            text = json.dumps(dict(value)) if isinstance(value, Mapping) else super().check(value)
            if isinstance(json.loads(text), dict):
                return text
        except (TypeError, ValueError, RecursionError):
            pass
        raise Unfit


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


_SWITCH_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclasses.dataclass(frozen=True)
class Switch(Kind):
    """On or off; on the command line the flag alone."""

    nargs: str | int | None = 0

    @property
    def limits(self) -> str:
        return "true or false"

    def from_config(self, value: object) -> object:
        """Also the words that YAML reads as true and false, in quotes."""
        return _SWITCH_WORDS.get(value.strip().lower(), value) if isinstance(value, str) else value

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

    def from_config(self, value: object) -> object:
        """The name that YAML does not read as one where it has no quotes: on, off, 404."""
        word = ("on" if value else "off") if isinstance(value, bool) else str(value)
        return word if isinstance(value, (bool, int, float)) and word in self.names else value

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
