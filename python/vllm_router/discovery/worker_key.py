"""Which URLs the core takes for workers, and which of them are one worker: its parser again, in Python.

    worker_key("http://GPU-0:80/")       "http://gpu-0 80", as of http://gpu-0
    worker_key("http://10.0.0:8000")     ValueError: has the host 10.0.0, which is not an IPv4 address …

The core rejects a whole list for one of its rows. A source looks at each row before, and leaves out or names
the one that is wrong. `cpp/worker/worker_url.cc` decides; the tests compare the two.
"""

from __future__ import annotations

import functools
import re
import socket

__all__ = ["worker_key"]

_MAX_URL_BYTES = 2048
_MAX_HOST_BYTES = 253
_MAX_RANK = 65_535
_MAX_PORT = 65_535


def worker_key(url: str) -> str:
    """A text that is equal for URLs of one worker: case of the host, `:80` and `/` at the end do not matter.

    Raises:
        ValueError: the core rejects the URL. The message says what is wrong with it, and shows nothing that
            may be a password.
    """
    key, misfit = _parsed(url)
    if misfit:
        raise ValueError(misfit)
    return key


@functools.lru_cache(maxsize=16_384)  # a source lists the same workers again and again
def _parsed(url: str) -> tuple[str, str]:
    """The key, or what is wrong."""
    try:
        return _key(url), ""
    except ValueError as error:
        return "", str(error)


def _key(url: str) -> str:
    _check_characters(url)
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ValueError("has no scheme; write it as http://host:port, for example http://10.0.0.1:8000")
    given, scheme = scheme, scheme.lower()
    if scheme not in ("http", "https", "ray", "name"):
        raise ValueError("has another scheme than http and https, over which workers are reached")
    rest, rank = _without_rank(rest.rstrip("/"))
    rest = rest.rstrip("/")
    if scheme in ("ray", "name"):
        if not rest:
            raise ValueError("has nothing after the scheme; write name://<id>")
        return f"{given}://{rest}{rank}"
    match = re.match(r"[^/?#]*", rest)
    authority = match[0] if match else ""
    prefix = rest[len(authority) :]
    if "@" in authority:
        raise ValueError(
            "has something before '@' that reads as a user name; workers take no user names or passwords"
        )
    for mark, what in (("?", "query"), ("#", "fragment")):
        if mark in prefix:
            raise ValueError(f"has a {what}; a worker is a base address, so end it before '{mark}'")
    host, port = _host_and_port(authority, 443 if scheme == "https" else 80)
    _check_prefix(prefix)
    return f"{scheme}://{host.lower()} {port}{prefix}{rank}"


def _check_characters(url: str) -> None:
    if not url:
        raise ValueError("is empty; write it as http://host:port")
    if not url.isascii():
        raise ValueError("contains a character outside ASCII; write the host in its xn-- form")
    if len(url) > _MAX_URL_BYTES:
        raise ValueError(f"is {len(url)} bytes long; the limit is {_MAX_URL_BYTES}")
    match = re.search(r"[\x00-\x20,\x7f]", url)
    if match is not None:
        what = {" ": "a blank", "\t": "a blank", ",": "a comma"}.get(match[0], "a control character")
        raise ValueError(f"contains {what}; remove it")


def _without_rank(rest: str) -> tuple[str, str]:
    """The text, and `@rank` if it ends in one."""
    match = re.search(r"@([0-9]+)\Z", rest)
    if match is None:
        return rest, ""
    if _number(match[1]) > _MAX_RANK:
        raise ValueError(f"has a data-parallel rank above {_MAX_RANK}")
    return rest[: match.start()], f"@{_number(match[1])}"


def _number(digits: str) -> int:
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < 10 else 10**9  # int() takes no digits without end


def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, after = authority[1:].partition("]")
        if not bracket:
            raise ValueError("opens '[' without ']'; write http://[::1]:8000")
        if not _is_address(socket.AF_INET6, host):
            raise ValueError(
                "has something in brackets that is not an IPv6 address (zones are not supported)"
            )
        if after and not after.startswith(":"):
            raise ValueError(
                "has something after the address; only a port may follow, as in http://[::1]:8000"
            )
    else:
        host, colon, digits = authority.rpartition(":")
        if not colon:
            host, digits = authority, ""
        after = colon + digits
        _check_name(host)
    if not after:
        return host, default
    if not re.fullmatch(r"[0-9]+", after[1:]) or not 1 <= _number(after[1:]) <= _MAX_PORT:
        raise ValueError("has a port that is no number between 1 and 65535")
    return host, _number(after[1:])


def _check_name(host: str) -> None:
    if not host:
        raise ValueError("has no host; write it as http://host:port")
    if len(host) > _MAX_HOST_BYTES:
        raise ValueError(f"has a host of {len(host)} bytes; a host name has at most {_MAX_HOST_BYTES}")
    if ":" in host:
        raise ValueError("has more than one ':' after the host; write an IPv6 address as http://[::1]:8000")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", host):
        raise ValueError(
            "has a host of other characters than letters, digits, '-', '.' and '_' (write other names in "
            "their xn-- form)"
        )
    if host.startswith(".") or ".." in host:
        raise ValueError(f"has an empty label in its host {host}")
    # A name that ends in a number is an IPv4 address to every resolver, so it must be a whole one.
    if host.rpartition(".")[2].isdigit() and not _is_address(socket.AF_INET, host):
        raise ValueError(f"has the host {host}, which is not an IPv4 address such as 10.0.0.1")


def _is_address(family: int, text: str) -> bool:
    try:
        socket.inet_pton(family, text)
    except OSError:
        return False
    return True


def _check_prefix(prefix: str) -> None:
    if re.search(r"[^A-Za-z0-9/._~!$&'()*+,;=:@%-]", prefix):
        raise ValueError("has a character in its path that must be written percent-encoded")
    if re.search(r"%(?![0-9A-Fa-f]{2})", prefix):
        raise ValueError(
            "has a '%' in its path that two hexadecimal digits do not follow; write %25 for a percent sign"
        )
    if "%00" in prefix:
        raise ValueError("has an encoded NUL (%00) in its path; remove it")
