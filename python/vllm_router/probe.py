"""`vllm-router probe`: whether a router is ready, by exit status, for the health check of a container.

    vllm-router probe                                        GET http://127.0.0.1:30000/readiness
    vllm-router probe --url https://127.0.0.1:30000 --insecure --path /liveness

Exit status: 0 when the response has status 200, 1 otherwise with one line on stderr that says what was seen,
2 for a mistake on the command line.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence

from vllm_router._http_get import NoReplyError, check_url, get, tls_context
from vllm_router._messages import quoted
from vllm_router.settings.command_line import CommandParser

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
    parser.add_argument("--insecure", action="store_true", help="Do not verify the certificate.")
    return parser


def _path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]*", text):
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a path like /readiness")
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
    if url.lower().startswith("https:"):
        try:
            context = tls_context(ca_file=arguments.ca_file, insecure=arguments.insecure)
        except OSError as error:
            parser.error(f"--ca-file {arguments.ca_file} cannot be used: {error.strerror or 'it is not PEM'}")
    elif arguments.ca_file or arguments.insecure:
        parser.error("--ca-file and --insecure are for https URLs; write --url https://...")
    try:
        status = get(url, arguments.path, arguments.timeout_secs, context=context).status
    except NoReplyError as error:
        seen = str(error)
    else:
        if status == 200:
            return 0
        seen = f"status {status}"
    print(f"vllm-router probe: {url.rstrip('/')}{arguments.path}: {seen}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
