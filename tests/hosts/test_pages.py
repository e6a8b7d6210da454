"""The Python of the pages about hosts runs in the environment of its host."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import HOSTS, ROOT, blocks
from tests.fakes.wire import free_port
from tests.hosts.environments import HOST

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", sorted(HOSTS))
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    if HOSTS[page] != HOST:
        pytest.skip(f"runs in the environments of {HOSTS[page]}")
    program = tmp_path / "page.py"
    text = "\n".join(blocks(ROOT / "docs" / "how-to" / page))
    program.write_text(text.replace('"9000"', f'"{(port := free_port())}"').replace(":9000/", f":{port}/"))
    environment = {"RAY_raylet_start_wait_time_s": "300", **os.environ}
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
