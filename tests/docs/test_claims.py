"""What pages say of what is there: lists of policies, versions, what is not built, defaults.

Row 43 of the third list: each of these was true once. What a page lists or denies is compared with the code.
"""

import re
from pathlib import Path

from tests.repo.rules import none_of
from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing
from vllm_router._version import __version__
from vllm_router.router_args import FLAGS
from vllm_router.settings.names import SPELLINGS

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.parent.name != "decisions"
]
# What a page may say is not there: functions of flags, and what no flag is for.
UNBUILT = {flag.not_built.function for flag in FLAGS.values() if flag.not_built} | {"gRPC"}
COMPARED = "<!-- compared:"  # what follows is written by tests/reference/compare.py


def test_lists_of_policies_have_all_of_them() -> None:
    policies = testing.policy_names()
    table = (ROOT / "README.md").read_text().split("| policy | picks |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == sorted(policies)
    arguments = (Router.__doc__ or "").split("worker_urls:")[0]
    assert set(policies) <= set(re.findall(r"`(\w+)`", arguments))


@for_each_row("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_versions_in_names_of_artefacts_are_this_one(page: Path) -> None:
    found = re.findall(r"vllm[_-]router[-:](\d+\.\d+\.\d+)", page.read_text())
    assert set(found) <= {__version__}


def test_the_wheels_are_those_that_are_made() -> None:
    made = re.search(r"for version in ([0-9. ]+);", (ROOT / "scripts" / "find_pythons.sh").read_text())
    assert made
    first, *_, last = made[1].split()
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    assert set(re.findall(r"3\.\d+ to 3\.\d+", page)) == {f"{first} to {last}"}


def test_what_pages_say_is_not_built_is_not() -> None:
    """A sentence that denies something names a function that a flag names as missing."""
    wrong = []
    for page in PAGES:
        text = page.read_text().split(COMPARED)[0]
        for block in re.split(r"\n(?:\n|\| )", text):
            denied = re.search(r"not (?:built|implemented)(?: yet)?\b", block)
            if denied and not any(
                re.search(re.escape(one), block, re.IGNORECASE) for one in UNBUILT | GENERAL
            ):
                wrong.append(f"{page.relative_to(ROOT)}: {' '.join(block.split())[:160]}")
    none_of(wrong, "name the function as --help does; is it missing still?")


# Sentences about flags that are not built in general.
GENERAL = {
    "Flags of features that are not implemented yet",
    "A flag of a feature that is not built yet ends the command",
    "a function that is not implemented yet",
    "their functions are not implemented",
    "flags that are not implemented yet",
    "flags, YAML, exit statuses, what is not built yet",
    "features that are\nnot built (`_agent_aware_…`",
    "## Not built yet",
    "## Not implemented yet",
    "`vllm_router.mini_lb` can be imported; its balancer raises that it is not built",
    "another way of reading KV events",
    "encode/prefill/decode mode",
}


def test_advice_to_give_a_flag_is_no_advice_to_leave_its_default() -> None:
    wrong = []
    for page in (ROOT / "docs" / "how-to").glob("*.md"):
        for row in re.findall(r"^\| .* \|$", page.read_text(), re.MULTILINE):
            for name, text in re.findall(r"\| `--([a-z0-9-]+)[ =]([^\s`]+)` \|", row):
                # Not of a command of its own, or of an engine.
                spelling = SPELLINGS.get(name.replace("-", "_"))
                if spelling and text in map(str, (spelling.flag.default, spelling.flag.command_default)):
                    wrong.append(f"{page.name}: --{name} {text} is the default")
    none_of(wrong, "say that it is the default, or another value")
