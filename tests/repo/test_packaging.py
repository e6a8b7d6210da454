"""pyproject.toml, CMake and the Makefile say the same thing, and a missing package is named."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_runtime_group_repeats_the_dependencies():
    assert PYPROJECT["dependency-groups"]["runtime"] == PYPROJECT["project"]["dependencies"]


def test_the_build_group_repeats_the_build_requirements():
    assert PYPROJECT["dependency-groups"]["build"] == PYPROJECT["build-system"]["requires"]


def test_the_makefile_lists_every_target_that_the_documents_name():
    text = (ROOT / "Makefile").read_text()
    documented = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert {
        "deps",
        "build",
        "demo",
        "test",
        "bench",
        "sanitize",
        "lint",
        "wheel",
        "clean",
        "help",
    } <= documented
    for document in ["README.md", "CONTRIBUTING.md", "tests/README.md"]:
        named = re.findall(r"(?:`|^    )make ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE)
        assert {name for name in named if not name.startswith("build-")} <= documented, document


ALWAYS = (
    "g++",
    "python3-dev",
    "libxxhash-dev",
    "libzmq3-dev",
    "libhiredis-dev",
    "libnghttp2-dev",
)  # what CMake finds without a package of its own
# CMake's name for it, and the package that brings it.
SYSTEM_PACKAGES = {
    "absl": "libabsl-dev",
    "simdjson": "libsimdjson-dev",
    "prometheus-cpp": "prometheus-cpp-dev",
    "Boost": "libboost1.81-dev",
    "OpenSSL": "libssl-dev",
}


def test_one_sentence_names_every_missing_package_and_what_installs_it(tmp_path):
    cmake = shutil.which("cmake")
    assert cmake is not None
    hide = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in SYSTEM_PACKAGES]
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run = subprocess.run(
        [cmake, "-S", ROOT, "-B", tmp_path, python, *hide], capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    sentence = " ".join(run.stderr.split())
    line = f"apt-get install {' '.join(SYSTEM_PACKAGES.values())}"
    assert line in [line.strip() for line in run.stderr.splitlines()]  # whole, to be copied
    assert "dnf install abseil-cpp-devel simdjson-devel prometheus-cpp-devel" in sentence


def test_without_a_compiler_the_same_sentence_names_it_and_everything_else(tmp_path):
    """mending row 51: the second attempt named what the first had not."""
    run = subprocess.run(
        ["cmake", "-S", ROOT, "-B", tmp_path, f"-DPython_EXECUTABLE={sys.executable}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CXX": str(tmp_path / "no-compiler")},
    )
    assert run.returncode != 0
    sentence = " ".join(run.stderr.split())
    assert "a C++20 compiler" in sentence
    assert {*ALWAYS, *SYSTEM_PACKAGES.values()} <= set(sentence.split())


def test_the_readme_names_what_pip_install_needs_of_the_system():
    readme = (ROOT / "README.md").read_text()
    (line,) = re.findall(r"^    (?:sudo )?apt-get install (.*)$", readme, re.MULTILINE)
    assert {*ALWAYS, *SYSTEM_PACKAGES.values()} <= set(line.split())


def test_make_deps_installs_what_cmake_asks_for():
    script = (ROOT / "scripts" / "install_deps.sh").read_text()
    asked = re.findall(
        r"^router_want\(.* (\S+) \S+\)$", (ROOT / "cmake" / "dependencies.cmake").read_text(), re.MULTILINE
    )
    asked[asked.index("${boost}")] = SYSTEM_PACKAGES["Boost"]
    assert set(SYSTEM_PACKAGES.values()) < set(asked)
    assert [package for package in asked if package not in re.split(r"[^\w.-]+", script)] == []
