"""`vllm-router simulate-worker`: one simulated worker as a process of its own.

    vllm-router simulate-worker --port 0 --engine h200_32b --cache-blocks 20000

Prints one line with its URL when it listens and runs until SIGTERM or SIGINT. Exit status: 0 after a signal,
1 when it cannot listen or has crashed (`--crash-after`), 2 for a mistake on the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from vllm_router.settings.command_line import CommandParser
from vllm_router.testing import OPTIONS, SimulatedWorker


def make_parser() -> CommandParser:
    """A flag for each option of SimulatedWorker, in both spellings."""
    parser = CommandParser(
        prog="vllm-router simulate-worker",
        description="A worker without a GPU: the HTTP endpoints of vLLM, deterministic text, a prefix "
        "cache and injected faults.",
        allow_abbrev=False,
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in OPTIONS.values():
        group = groups.setdefault(option.group, parser.add_argument_group(option.group))
        spellings = dict.fromkeys((f"--{option.name.replace('_', '-')}", f"--{option.name}"))
        if isinstance(option.default, bool):
            group.add_argument(
                *spellings,
                dest=option.name,
                action="store_true",
                default=argparse.SUPPRESS,
                help=option.help,
            )
        else:
            group.add_argument(
                *spellings,
                dest=option.name,
                type=type(option.default),
                default=argparse.SUPPRESS,
                metavar="TEXT" if isinstance(option.default, str) else "N",
                help=f"{option.help} Default: {option.shown_default}.",
            )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = make_parser()
    options = vars(parser.parse_command(argv))
    stopped: list[int] = []  # not an Event: its lock may be held by the very code that the signal interrupts
    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda number, _: stopped.append(number)) for number in signals]
    try:
        return _serve(parser, options, stopped)
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _serve(parser: CommandParser, options: dict[str, Any], stopped: list[int]) -> int:
    try:
        worker = SimulatedWorker(**options)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    except OSError as error:
        print(f"vllm-router simulate-worker: {error}", file=sys.stderr)
        return 1
    with worker:
        # Whoever started it may have closed the pipe already, or have no room.
        with contextlib.suppress(OSError):
            print(f"simulated worker on {worker.url}", flush=True)
        # A crash is a person's or a script's to notice: looking ten times a second is soon enough.
        while not stopped:
            time.sleep(0.1)
            if worker.crashed:
                print("vllm-router simulate-worker: crashed, as --crash-after demands", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
