"""docs/reference/limits.md against the flags and cpp/base/limits.h: what is there has value and reason."""

import re
from pathlib import Path

from vllm_router.router_args import FLAGS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text()

# Groups of flags that are limits through and through; of others, only what the page chose to name.
LIMITING = ("Timeouts", "Connections and limits")


def rows(heading: str) -> list[tuple[str, str, str, str]]:
    """Of each line its name, its value, what happens over it, and why."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^- `(.+?)` = (.+?) \((.+?)\): (.+)$", part, re.MULTILINE)
    assert len(found) == len(re.findall(r"^- `", part, re.MULTILINE)), "a line that cannot be read"
    return found


def constants() -> dict[str, int]:
    """Of base/limits.h, whose values are numbers and products of numbers."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "cpp" / "base" / "limits.h").read_text())
    found = re.findall(r"inline constexpr \w+ (k\w+)\s*=\s*([^;]+);", text)
    values: dict[str, int] = {}
    for name, expression in found:
        value = 1
        for factor in re.sub(r"[\s']|(?<=\d)u?ll?\b", "", expression).split("*"):
            value *= values.get(factor) or int(factor)
        values[name] = value
    return values


def test_every_flag_has_its_default() -> None:
    named = {}
    for flag, default, _, _ in rows("Times") + rows("Sizes and numbers"):
        name = flag.strip("-").replace("-", "_")
        assert name not in named, name
        named[name] = default
    for name, default in named.items():
        value = FLAGS[name].default
        assert default == ("unset" if value is None else str(value)), name
    assert {name for name, flag in FLAGS.items() if flag.group in LIMITING} <= set(named)


def test_the_constants_of_the_page_have_their_values() -> None:
    told = {name: int(value.replace(",", "")) for name, value, _, _ in rows("Fixed")}
    assert len(told) > 25
    assert told.items() <= constants().items()


def test_every_constant_has_a_comment() -> None:
    """Beside it, or above the paragraph that it stands in: the page has those alone that a user may meet."""
    paragraphs = (ROOT / "cpp" / "base" / "limits.h").read_text().split("\n\n")
    for paragraph in paragraphs:
        if "inline constexpr" in paragraph:
            assert paragraph.startswith("//"), paragraph
