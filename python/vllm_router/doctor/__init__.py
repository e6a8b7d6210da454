"""`vllm-router doctor`: checks a machine, settings and workers without serving, for a look before the start.

    vllm-router doctor --worker-urls http://a:8000 http://b:8000
    vllm-router doctor --config router.yaml --json

It takes the flags of the router. Exit status: 0 with nothing worse than warnings, 1 with an error or where
the findings cannot be written, 2 for a mistake on the command line or in the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from vllm_router._output import write_out
from vllm_router._version import __version__
from vllm_router.doctor import configuration, machine, workers
from vllm_router.doctor.finding import Finding, as_text, worst
from vllm_router.launch_router import _make_parser, check_config_is_a_file, parse_router_args
from vllm_router.settings.command_line import CommandParser


def make_parser() -> CommandParser:
    """The router's flags and one more."""
    parser = _make_parser()
    parser.prog = "vllm-router doctor"
    parser.usage = "vllm-router doctor [--json] [the flags of vllm-router]"
    parser.description = (
        "Checks limits of the machine, settings and workers without serving, and says what to change."
    )
    parser.add_argument("--json", action="store_true", help="Print the findings as JSON.")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    namespace = parser.parse_command(arguments)
    if namespace.config is not None:
        try:
            check_config_is_a_file(namespace.config, devices=False)
        except ValueError as error:
            parser.error(str(error))
    args = parse_router_args(arguments, parser)
    findings: list[Finding] = [*machine.findings(), *configuration.findings(args), *workers.findings(args)]
    if namespace.json:
        report = {
            "format": 1,
            "version": __version__,
            "status": worst(findings),
            "findings": [finding._asdict() for finding in findings],
        }
        text = json.dumps(report, indent=2)
    else:
        text = as_text(findings)
    return write_out(f"{text}\n", 1 if worst(findings) == "error" else 0)
