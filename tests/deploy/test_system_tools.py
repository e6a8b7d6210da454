"""Units, man page and completion scripts through the tools that read them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.man_page import render
from tests.deploy.manifests import ROOT
from vllm_router.completion import SHELLS, commands

pytestmark = pytest.mark.release

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/vllm-router/bin/vllm-router"


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"there is no {name}; install the Debian packages systemd, mandoc, bash, zsh and fish")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    assert PROGRAM in text
    copy = tmp_path / unit.name
    # Neither the router nor its man page is installed here.
    copy.write_text(text.replace(PROGRAM, "/bin/true").replace("Documentation=man:vllm-router(1)\n", ""))
    instance = tmp_path / unit.name.replace("@", "@blue")
    if instance != copy:
        instance.symlink_to(copy)
    done = run("systemd-analyze", "verify", instance)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_exposure_of_the_unit_is_at_most_3(unit: Path) -> None:
    done = run("systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", unit)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mandoc_finds_nothing_in_the_man_page(tmp_path: Path) -> None:
    page = tmp_path / "vllm-router.1"
    page.write_text(render())
    done = run("mandoc", "-T", "lint", "-W", "warning", page)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_parses_its_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / f"completion.{shell}"
    script.write_text(SHELLS[shell](commands()))
    done = run(shell, "-n", script)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes_names_of_policies_and_no_secret(tmp_path: Path) -> None:
    script = tmp_path / "vllm-router.fish"
    script.write_text(SHELLS["fish"](commands()))
    line = (
        f"source {script}; complete -C 'vllm-router --policy prefix_h'; complete -C 'vllm-router --api-key '"
    )
    done = run("fish", "--no-config", "-c", line)
    assert [line.split("\t")[0] for line in done.stdout.splitlines() if line] == ["prefix_hash"]
