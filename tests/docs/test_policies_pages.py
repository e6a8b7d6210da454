"""The pages about policies, and the glossary, against the code."""

import re
from pathlib import Path

import pytest

from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS, POLICY_OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "policies.md").read_text()
HOW_TO = (DOCS / "how-to" / "choose_a_policy.md").read_text()
POLICIES = testing.policy_names()


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table with these columns."""
    rows = []
    for line in page.split(heading, 1)[1].splitlines()[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_every_policy_and_alias_is_named() -> None:
    rows = table(REFERENCE, "| policy | also accepted |")
    named = {row[0].split("`")[1]: re.findall(r"`(\w+)`", row[1]) for row in rows}
    aliases = {alias: name for alias, name in FLAGS["policy"].kind.aliases.items() if name in POLICIES}
    assert list(named) == POLICIES
    assert {alias: policy for policy, names in named.items() for alias in names} == aliases


def test_every_policy_has_its_section_and_its_row() -> None:
    sections = [name for name in re.findall(r"^## (\w+)$", REFERENCE, re.MULTILINE) if name in POLICIES]
    assert sorted(sections) == sorted(POLICIES), "docs/reference/policies.md: one section for each policy"
    rows = [row[0].strip("`") for row in table(HOW_TO, "| policy | picks |")]
    assert sorted(rows) == sorted(POLICIES), "docs/how-to/choose_a_policy.md: one row for each policy"


def test_every_reason_is_explained_once() -> None:
    reasons = [row[0].strip("`") for row in table(REFERENCE, "| reason | meaning | given by |")]
    assert sorted(reasons) == sorted(testing.reason_names())


def test_the_section_of_a_policy_names_the_options_that_no_other_reads() -> None:
    """And every option is named; docs/reference/cli.md has values, defaults and meanings."""
    sections = dict(re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", REFERENCE, re.MULTILINE | re.DOTALL))
    for name in POLICY_OPTIONS:
        policies = FLAGS[name].policies
        if len(policies) == 1:
            assert f"`{name}" in sections[policies[0]], name
        elif policies:
            assert f"`{name}" in REFERENCE, name


@pytest.mark.parametrize("snippet", re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL))
def test_the_how_to_s_snippets_run(snippet: str) -> None:
    exec(compile(snippet, "choose_a_policy.md", "exec"), {"__name__": "snippet"})


def test_the_glossary_is_in_order_and_has_the_words_of_the_code() -> None:
    words = re.findall(
        r"^\| \*\*(.+?)\*\* \|", (DOCS / "reference" / "glossary.md").read_text(), re.MULTILINE
    )
    assert words == sorted(words, key=str.lower)
    needed = "worker block prefix session fleet exchange decision ticket outcome policy"
    assert set(needed.split()) <= set(words)
