"""docs/reference/cli.md against the parser: every flag once, with the default that the parser gives."""

import argparse
import re
from pathlib import Path

from scripts.cli_reference import render
from vllm_router.router_args import FLAGS, RouterArgs

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    RouterArgs.add_cli_args(parser)
    return parser


def defaults() -> dict[str, str]:
    """The default that the page shows, by flag; empty for none."""
    names = r"`(--[a-z0-9-]+)`(?:, `--[a-z0-9-]+`(?: \(deprecated\))?)*"
    return dict(re.findall(rf"^- {names}(?: = (.+?))? \(", PAGE.read_text(), re.MULTILINE))


def test_the_page_is_what_the_flags_say() -> None:
    assert PAGE.read_text() == render(), "run: python scripts/cli_reference.py > docs/reference/cli.md"


def test_the_page_names_every_flag_of_the_parser_once_and_no_other() -> None:
    lines = PAGE.read_text().split("## The command itself\n")[1].splitlines()
    rows = "\n".join(line for line in lines if line.startswith(("| ", "- `--")))
    named = re.findall(r"`(--[a-z0-9-]+)`", rows)
    for action in parser()._actions:
        dashed = [name for name in action.option_strings if name.startswith("--") and "_" not in name]
        for name in dashed:
            assert named.count(name) == 1, name
    known = {name for action in parser()._actions for name in action.option_strings}
    assert set(named) - known == {"--version", "--config"}


def test_the_page_shows_the_parser_s_defaults() -> None:
    namespace = parser().parse_args([])
    by_flag = defaults()
    assert len(by_flag) > 300
    for flag in FLAGS.values():
        if flag.spelling in by_flag:
            default = getattr(namespace, flag.dest)
            if isinstance(default, bool):
                expected = "on" if default else "off"
            else:
                shown = " ".join(default) if isinstance(default, list) else default
                expected = "" if default in (None, [], {}) else f"`{shown}`"
            assert by_flag[flag.spelling] == expected, flag.spelling
