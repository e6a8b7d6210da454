"""The Python of the pages about hosts runs in the environment of its host."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import HOSTS, ROOT, blocks

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", sorted(HOSTS))
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(HOSTS[page]) is None:
        pytest.skip(f"{HOSTS[page]} is not installed in this environment")
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(ROOT / "docs" / "how-to" / page)))
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
