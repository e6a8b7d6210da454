"""`vllm-router probe`: whether a router is ready, by exit status, for the health check of a container.

    vllm-router probe                                        GET http://127.0.0.1:30000/readiness
    vllm-router probe --url https://127.0.0.1:30000 --insecure --path /liveness
    vllm-router probe --url https://127.0.0.1:30000 --cert-file probe.crt --key-file probe.key

Exit status: 0 when the response has status 200, 1 otherwise with one line on stderr that says what was seen,
2 for a mistake on the command line.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_router._http_get import NoReplyError, check_url, get, shown_path, tls_context
from vllm_router._messages import quoted
from vllm_router._output import printable
from vllm_router.settings.command_line import CommandParser

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "http://127.0.0.1:30000"
URL_VARIABLE = "VLLM_ROUTER_PROBE_URL"


def make_parser() -> CommandParser:
    """The flags of the command."""
    parser = CommandParser(
        prog="vllm-router probe",
        description="Exits with 0 when the router responds with status 200, else with 1 and what was seen. "
        "For the health check of a container, without curl.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help=f"The router. Default: {URL_VARIABLE} of the environment, else {DEFAULT_URL}.",
    )
    parser.add_argument(
        "--path", type=_path, default="/readiness", metavar="PATH", help="The endpoint. Default: /readiness."
    )
    parser.add_argument(
        "--timeout-secs",
        "--timeout_secs",
        type=_seconds,
        default=2.0,
        metavar="S",
        help="Time limit of the whole probe in seconds. Default: 2.",
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
    return parser


def _path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]*", text):
        raise argparse.ArgumentTypeError(f"{quoted(shown_path(text))} is not a path like /readiness")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number of seconds from 0.001 to 3600")
    return seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = make_parser()
    arguments = parser.parse_command(argv)
    url = arguments.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        check_url(url)
    except ValueError as error:
        parser.error(f"{'--url' if arguments.url else URL_VARIABLE}: {error}")
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
            "--ca-file, --cert-file, --key-file and --insecure are for https URLs; write --url https://..."
        )
    try:
        status = get(url, arguments.path, arguments.timeout_secs, context=context).status
    except NoReplyError as error:
        seen = str(error)
    else:
        if status == 200:
            return 0
        seen = f"status {status}"
    print(f"vllm-router probe: {url.rstrip('/')}{shown_path(arguments.path)}: {seen}", file=sys.stderr)
    return 1


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


if __name__ == "__main__":
    sys.exit(main())
