"""`vllm-router status`: what is wrong with a router that runs and its workers, on one screen.

    vllm-router status                                       of http://127.0.0.1:30000
    vllm-router status http://router:30001 --api-key-file admin.key
    vllm-router status --json                                what GET /admin/status says

Exit status: 0 when nothing is wrong, 1 when something is, 2 for a mistake on the command line, 3 when the
router does not say.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vllm_router._http_get import NoReplyError
from vllm_router._output import printable
from vllm_router._router_url import DEFAULT_URL, URL_VARIABLE, add_router_arguments, router_of
from vllm_router.settings.command_line import CommandParser

PATH = "/admin/status"
MOST_BYTES = 16 << 20


def make_parser() -> CommandParser:
    """The flags of the command."""
    parser = CommandParser(
        prog="vllm-router status",
        description="Says what is wrong with a router and its workers: first in a sentence, then in a table.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "url",
        nargs="?",
        metavar="URL",
        help="The router, by its port of --admin-port if it has one. "
        f"Default: {URL_VARIABLE} of the environment, else {DEFAULT_URL}.",
    )
    parser.add_argument(
        "--api-key-file",
        "--api_key_file",
        metavar="FILE",
        help="A file whose first line is a key that --admin-api-key-file has.",
    )
    parser.add_argument("--json", action="store_true", help=f"Print what GET {PATH} says.")
    add_router_arguments(parser, timeout_help="Time limit in seconds.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = make_parser()
    arguments = parser.parse_command(argv)
    router = router_of(parser, arguments, name="URL")
    headers = {}
    if arguments.api_key_file is not None:
        try:
            key = Path(arguments.api_key_file).read_text(encoding="ascii").partition("\n")[0].strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not a file of ASCII text"
            parser.error(f"--api-key-file {printable(arguments.api_key_file)} cannot be read: {reason}")
        headers["Authorization"] = f"Bearer {key}"
    try:
        reply = router.get(PATH, headers, MOST_BYTES)
        status = _status(reply.status, reply.body)
    except (NoReplyError, ValueError) as error:
        print(f"vllm-router status: {router.url.rstrip('/')}{PATH}: {error}", file=sys.stderr)
        return 3
    print(json.dumps(status, indent=1) if arguments.json else "\n".join(_screen(status, time.time())))
    return 1 if status["conditions"] else 0


def _status(code: int, body: bytes) -> dict[str, Any]:
    """Raises ValueError with what to do instead."""
    if code in (401, 403):
        raise ValueError(f"status {code}; give --api-key-file with a key of --admin-api-key-file")
    if code != 200:
        raise ValueError(f"status {code}; is this a vllm-router, and its --admin-port if it has one?")
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if not isinstance(status, dict) or not {"sentence", "conditions", "workers"} <= set(status):
        raise ValueError("the response is not a status of vllm-router")
    return status


def _screen(status: dict[str, Any], now: float) -> Iterator[str]:
    """Severities are those of the alerts: where requests fail it is a page, else a ticket."""
    conditions = status["conditions"]
    if not conditions:
        yield printable(status["sentence"])
    for condition in conditions:
        began = _age(now - condition["since"])
        yield f"{printable(condition['severity'])}, since {began}: {printable(condition['text'])}"
    if status["workers"]:
        yield ""
        rows: list[tuple[str, ...]] = [
            (
                "worker",
                "state",
                "open requests",
                "attempts of the last minute",
                "response begins p50, p95",
                "last 5xx, or no response",
            )
        ]
        rows += [_row(worker) for worker in status["workers"]]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _of_model(said: dict[str, Any], before: str) -> str:
    model = said.get("model")
    return f"{before}{printable(json.dumps(model, ensure_ascii=False))}" if model else ""


def _row(worker: dict[str, Any]) -> tuple[str, ...]:
    recent = worker["recent"]
    codes = ", ".join(f"{count} {printable(code)}" for code, count in recent["responses"].items())
    times = recent.get("stream_head_ms") or recent.get("head_ms") or {}
    failure = recent.get("last_failure")
    return (
        printable(worker["url"]),
        printable(worker["state"]).replace("_", " ") + _of_model(worker, " "),
        str(worker["load"]),
        codes or "no attempts",
        ", ".join(f"{times[name]:.0f} ms" for name in ("p50", "p95")) if times else "-",
        _failure(failure) if failure else "-",
    )


def _failure(failure: dict[str, Any]) -> str:
    what = str(failure["status"] or failure.get("error") or "no response")
    return f"{printable(what)}{_of_model(failure, ' for ')}, {_age(failure['seconds_ago'])} ago"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


if __name__ == "__main__":
    sys.exit(main())
