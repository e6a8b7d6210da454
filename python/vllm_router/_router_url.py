"""How a command finds and trusts a router that runs: its URL, its certificate, and time.

add_router_arguments(parser)
router = router_of(parser, arguments)        a mistake ends the command with status 2
router.get("/readiness")
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_router._http_get import Reply, check_url, get, tls_context
from vllm_router._messages import quoted
from vllm_router._output import printable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

DEFAULT_URL = "http://127.0.0.1:30000"
URL_VARIABLE = "VLLM_ROUTER_PROBE_URL"


@dataclasses.dataclass(frozen=True)
class RouterUrl:
    """A router that may be asked."""

    url: str
    timeout: float  # seconds, of one request
    context: ssl.SSLContext | None = None

    def get(self, path: str, headers: Mapping[str, str] | None = None, most_bytes: int = 0) -> Reply:
        """GET `path`; raises NoReplyError."""
        return get(self.url, path, self.timeout, context=self.context, headers=headers, most_bytes=most_bytes)


def add_router_arguments(parser: argparse.ArgumentParser, *, timeout_help: str) -> None:
    """The flags that say how to reach the router; `--url` is the caller's."""
    parser.add_argument(
        "--timeout-secs",
        "--timeout_secs",
        type=_seconds,
        default=2.0,
        metavar="S",
        help=f"{timeout_help} Default: 2.",
    )
    parser.add_argument(
        "--ca-file",
        "--ca_file",
        metavar="FILE",
        help="Certificates of authorities (PEM) to trust. Default: those of the system.",
    )
    parser.add_argument(
        "--cert-file",
        "--cert_file",
        metavar="FILE",
        help="The certificate (PEM) to show to a router with --tls-client-ca-file. Needs --key-file.",
    )
    parser.add_argument(
        "--key-file",
        "--key_file",
        metavar="FILE",
        help="The private key (PEM) of --cert-file, without a password.",
    )
    parser.add_argument("--insecure", action="store_true", help="Do not verify the certificate.")


def router_of(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, *, name: str = "--url"
) -> RouterUrl:
    """What the arguments say; `name` of the one that has the URL. A mistake ends the command."""
    url = arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        check_url(url)
    except ValueError as error:
        parser.error(f"{name if arguments.url else URL_VARIABLE}: {error}")
    context = None
    if (arguments.cert_file is None) != (arguments.key_file is None):
        parser.error("--cert-file and --key-file belong together, and one is missing; give both or neither")
    if url.lower().startswith("https:"):
        try:
            context = _context(arguments)
        except ValueError as error:
            parser.error(str(error))
    elif arguments.insecure or not (arguments.ca_file is None and arguments.cert_file is None):
        parser.error(
            "--ca-file, --cert-file, --key-file and --insecure are for https URLs; write "
            f"{name + ' ' if name.startswith('-') else ''}https://..."
        )
    return RouterUrl(url=url, timeout=arguments.timeout_secs, context=context)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number of seconds from 0.001 to 3600")
    return seconds


def _context(arguments: argparse.Namespace) -> ssl.SSLContext:
    """Raises ValueError with a sentence about a file that cannot be used."""
    ca_file, cert, key = arguments.ca_file, arguments.cert_file, arguments.key_file
    for flag, path in (("--ca-file", ca_file), ("--cert-file", cert), ("--key-file", key)):
        if path is not None:
            _check_readable(flag, path)
    try:
        tls_context(ca_file=ca_file)
    except OSError:
        raise ValueError(
            f"--ca-file {printable(ca_file or '')} cannot be used: it has no certificate in PEM form, which "
            "begins with -----BEGIN CERTIFICATE-----"
        ) from None
    try:
        return tls_context(ca_file=ca_file, insecure=arguments.insecure, cert=cert, key=key)
    except OSError as error:
        raise ValueError(
            f"--cert-file {printable(cert or '')} and --key-file {printable(key or '')} cannot be used: "
            f"{getattr(error, 'reason', None) or error.strerror}; give a PEM certificate with its own key, "
            "without a password"
        ) from None


def _check_readable(flag: str, path: str) -> None:
    reason = None
    try:
        if Path(path).is_file():
            with Path(path).open("rb"):
                pass
        else:  # a FIFO would be waited for
            reason = "it is not a regular file" if Path(path).exists() else "No such file"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a path"
    if reason is not None:
        raise ValueError(f"{flag} {printable(path)} cannot be used: {reason}")
