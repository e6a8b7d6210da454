"""The wheel of `make wheel`: what it leans on, and that it works in an environment of its own."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]

DIST = Path(__file__).parents[2] / "dist"

# glibc's own libraries and the compiler's, which every Linux with a new enough glibc has.
OUTSIDE = re.compile(r"(ld-linux-[\w-]+|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so\.\d+")

EXERCISE = """
import vllm_router
from vllm_router import _core
assert "site-packages" in _core.__file__, _core.__file__
if hasattr(vllm_router, "Router"):
    router = vllm_router.Router(policy="round_robin", worker_urls=["http://a:8000", "http://b:8000"])
    with router.select(prompt="Hello") as first, router.select(prompt="Hello") as second:
        assert {first.worker_url, second.worker_url} == {"http://a:8000", "http://b:8000"}
print(vllm_router.__version__)
"""


@pytest.fixture(scope="module")
def wheel():
    wheels = list(DIST.glob("vllm_router-*.whl"))
    if len(wheels) != 1:
        pytest.skip(f"{DIST} holds {len(wheels)} wheels; `make wheel` leaves one")
    return wheels[0]


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The bin directory of a fresh virtual environment with the wheel in it."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    subprocess.run([home / "bin" / "pip", "install", "--quiet", wheel], check=True)
    return home / "bin"


def run(program, *arguments, directory):
    # Neither the source tree nor a build may lend it anything.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, cwd=directory, env=clean
    )


def test_only_glibc_and_compiler_libraries_stay_outside(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    libraries = [path for path in tmp_path.rglob("*") if ".so" in path.name]
    inside = {path.name for path in libraries}
    assert any(name.startswith("_core") for name in inside)
    outside = set()
    for library in libraries:
        header = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
        outside |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", header)) - inside
    assert [name for name in sorted(outside) if not OUTSIDE.fullmatch(name)] == []


def test_the_extension_is_small_and_exports_its_entry_only(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (extension,) = (tmp_path / "vllm_router").glob("*.so")  # and no _core_testing
    command = ["nm", "-D", "--defined-only", extension]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in table.splitlines()] == ["PyInit__core"]
    assert extension.stat().st_size < 6_000_000, "stripped, it is about 5 MB"


def test_it_says_which_linux_it_needs(wheel):
    assert re.search(r"-manylinux_2_\d+_x86_64(\.|\b)|-manylinux_2_\d+_aarch64", wheel.name)


def test_it_routes_in_an_environment_of_its_own(environment, tmp_path):
    done = run(environment / "python", "-c", EXERCISE, directory=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_command_says_its_version(environment, wheel, tmp_path):
    done = run(environment / "vllm-router", "--version", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert wheel.name.split("-")[1] in done.stdout
