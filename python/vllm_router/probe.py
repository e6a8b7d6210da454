"""`vllm-router probe`: whether a router is ready, by exit status, for the health check of a container.

    vllm-router probe                                        GET http://127.0.0.1:30000/readiness
    vllm-router probe --url https://127.0.0.1:30000 --insecure --path /liveness
    vllm-router probe --url https://127.0.0.1:30000 --cert-file probe.crt --key-file probe.key

Exit status: 0 when the response has status 200, 1 otherwise with one line on stderr that says what was seen,
2 for a mistake on the command line.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from vllm_router._http_get import NoReplyError, shown_path
from vllm_router._messages import quoted
from vllm_router._router_url import DEFAULT_URL, URL_VARIABLE, add_router_arguments, router_of
from vllm_router.settings.command_line import CommandParser


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
    add_router_arguments(parser, timeout_help="Time limit of the whole probe in seconds.")
    return parser


def _path(text: str) -> str:
    if not re.fullmatch(r"/[!-~]*", text):
        raise argparse.ArgumentTypeError(f"{quoted(shown_path(text))} is not a path like /readiness")
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = make_parser()
    arguments = parser.parse_command(argv)
    router = router_of(parser, arguments)
    try:
        status = router.get(arguments.path).status
    except NoReplyError as error:
        seen = str(error)
    else:
        if status == 200:
            return 0
        seen = f"status {status}"
    print(f"vllm-router probe: {router.url.rstrip('/')}{shown_path(arguments.path)}: {seen}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
