"""README and docs: their Python runs, their commands are understood, their links lead somewhere."""

import importlib.util
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from tests.docs.snippets import HOSTS, ROOT, blocks
from tests.repo.rules import none_of
from vllm_router.launch_router import COMMANDS, parse_router_args
from vllm_router.router_args import RouterArgs

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    if page.name in HOSTS and importlib.util.find_spec(HOSTS[page.name]) is None:
        pytest.skip(f"{HOSTS[page.name]} is not installed")
    # One process a page, its blocks in order, as a reader would type them; pytest runs those that are tests.
    program = tmp_path / "test_page.py"
    program.write_text("\n".join(blocks(page)))
    tests = "\ndef test_" in program.read_text()
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"] if tests else []
    command = [sys.executable, *options, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def commands(page: Path) -> list[str]:
    """The command lines of `vllm-router` in a page, without what the shell does with them."""
    lines = re.findall(r"^ *(?:[$] )?vllm-router (.*)$", page.read_text(), re.MULTILINE)
    return [re.split(r" [|>&#]| \d>", line)[0].strip() for line in lines if not re.search(r"\.\.\.|\[", line)]


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_commands_of_a_page_are_understood(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("router.yaml").write_text((ROOT / "examples" / "router.yaml").read_text())
    for line in commands(page):
        words = shlex.split(line)
        if "--help" in words:
            continue
        if words[0] in COMMANDS:
            import_module(COMMANDS[words[0]]).make_parser().parse_command(words[1:])
        else:
            args = parse_router_args(words)
            args._validate_router_args()
            assert args.warnings() == [], line


def test_the_metrics_listener_is_asked_for_metrics_alone() -> None:
    asked = [
        (page, path)
        for page in PAGES
        for path in re.findall(r"(?:localhost|127\.0\.0\.1):29000(/[^\s'\"`)]*)", page.read_text())
    ]
    assert len(asked) > 3
    wrong = [f"{page.relative_to(ROOT)}: {path}" for page, path in asked if path != "/metrics"]
    none_of(wrong, "ask these at the router's own port, 30000")


def what_is_wrong(block: str) -> str | None:
    """Of a block of YAML: settings of ours, and command lines of a deployment, are what the router takes."""
    try:
        if "policy" in yaml.safe_load(block):
            RouterArgs.from_yaml(block)._validate_router_args()
        for command in re.findall(r"args: (\[.*\])", block):
            parse_router_args([str(word) for word in yaml.safe_load(command)][2:])
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_the_yaml_of_the_pages_is_what_it_seems() -> None:
    found = [
        (page, block)
        for page in PAGES
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    ]
    assert len(found) > 3
    wrong = [f"{page.relative_to(ROOT)}: {told}" for page, block in found if (told := what_is_wrong(block))]
    none_of(wrong, "mend the YAML of these pages: the router would not start with it")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_the_links_of_the_pages_lead_somewhere() -> None:
    links = [
        (page, page.parent / target if target else page, anchor)
        for page in (*PAGES, *sorted((ROOT / "benchmarks").glob("*.md")))
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#?([^):\s]*)\)", page.read_text())
    ]
    assert len(links) > 100
    wrong = [
        f"{page.relative_to(ROOT)}: {leads_to.name}#{anchor}"
        for page, leads_to, anchor in links
        if not leads_to.exists() or (anchor and anchor not in anchors(leads_to))
    ]
    none_of(wrong, "these links lead nowhere: name a page and one of its headings, or remove them")


def test_the_one_index_names_every_page_and_the_readme_leads_to_it() -> None:
    index = ROOT / "docs" / "README.md"
    linked = re.findall(r"\]\(([^)#:\s]+)\)", index.read_text())
    rooms = ("tutorial", "how-to", "reference", "explanation")
    pages = {page for room in rooms for page in (ROOT / "docs" / room).glob("*.md")}
    assert not pages - {index.parent / target for target in linked}
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()
