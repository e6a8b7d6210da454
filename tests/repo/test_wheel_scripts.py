"""The scripts that build wheels, in directories whose paths have blanks."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("build_static_libraries.sh", "build_wheels.sh", "find_pythons.sh")

# Takes the place of a Python: makes environments, a wheel and its repaired copy, and notes CMAKE_ARGS.
PYTHON = """\
#!/bin/sh
set -eu
case "$1 $2" in
  "-c "*) echo cp310 ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m build") mkdir -p "$6" && touch "$6/router.whl" && printf '%s' "$CMAKE_ARGS" >cmake_args ;;
  "-m auditwheel") if [ "$3" = repair ]; then mkdir -p "$5" && cp "$6" "$5"; else test -f "$4"; fi ;;
esac
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env=os.environ | environment
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_clean(name: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck: apt-get install shellcheck")
    done = run("shellcheck", ROOT / "scripts" / name)
    assert done.returncode == 0, done.stdout


def test_a_wheel_is_built_where_the_path_has_blanks(tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    script = executable(
        checkout / "scripts" / "build_wheels.sh", (ROOT / "scripts" / "build_wheels.sh").read_text()
    )
    executable(checkout / "build" / "static" / "bin" / "cc", "#!/bin/sh\necho clang\n")
    launcher = executable(tmp_path / "my tools" / "ccache", "#!/bin/sh\n")
    python = executable(tmp_path / "my tools" / "python", PYTHON)
    done = run(script, python, PATH=f"{launcher.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "dist/router.whl: 0 bytes\n"
    # scikit-build-core splits it so.
    assert shlex.split((checkout / "cmake_args").read_text()) == [
        f"-DCMAKE_TOOLCHAIN_FILE={checkout}/cmake/wheel_toolchain.cmake",
        "-DROUTER_WARNINGS_AS_ERRORS=ON",
        f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}",
        f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}",
    ]


def test_the_newest_python_of_a_version_is_found_in_a_home_with_blanks(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    works = "#!/bin/sh\nexit 0\n"
    versions = home / ".local" / "share" / "uv" / "python"
    executable(versions / "cpython-3.13.9-linux" / "bin" / "python3.13", works)
    newest = executable(versions / "cpython-3.13.10-linux" / "bin" / "python3.13", works)
    fails = executable(home / ".pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", "#!/bin/sh\nexit 1\n")
    assert fails.exists()
    tools = tmp_path / "tools"  # without the system's own Pythons
    tools.mkdir()
    (tools / "sort").symlink_to(shutil.which("sort") or "")
    done = run(
        ROOT / "scripts" / "find_pythons.sh", HOME=str(home), PYENV_ROOT=str(home / ".pyenv"), PATH=str(tools)
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [str(newest)])
