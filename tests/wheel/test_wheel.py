"""The wheel of `make wheel`: what it leans on, and that it works in an environment of its own."""

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(600)]

DIST = Path(__file__).parents[2] / "dist"

# glibc's own libraries, which every Linux with a new enough glibc has; the compiler's are inside.
OUTSIDE = re.compile(r"(ld-linux-[\w-]+|lib(c|m|dl|rt|pthread|resolv))\.so\.\d+")
OLDEST_GLIBC = (2, 28)  # RHEL 8, Debian 10

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


WHEELS = sorted(DIST.glob("vllm_router-*.whl")) or [None]


@pytest.fixture(
    scope="module", params=WHEELS, ids=lambda wheel: "none" if wheel is None else wheel.name.split("-")[2]
)
def wheel(request):
    if request.param is None:
        pytest.skip(f"{DIST} holds no wheel; `make wheel` makes one")
    return request.param


def python_of(wheel):
    """The Python that it was built for and with; scripts/build_wheels.sh leaves it."""
    return DIST.parent / "build" / "wheels" / wheel.name.split("-")[2] / "bin" / "python"


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The bin directory of a fresh virtual environment with the wheel in it."""
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([python_of(wheel), "-m", "venv", home], check=True)
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
    assert wheel.stat().st_size < 7_000_000, "it is about 6.0 MB; the extension, stripped, 13 MB"


def test_it_runs_on_the_oldest_glibc_that_is_promised(wheel):
    named = re.search(r"-manylinux_(\d+)_(\d+)_(x86_64|aarch64)", wheel.name)
    assert named is not None
    assert (int(named[1]), int(named[2])) <= OLDEST_GLIBC


def test_it_names_the_libraries_that_it_contains_and_carries_their_notices(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if re.search(r"dist-info/sboms/.*\.json", name)]
        bill = json.loads(archive.read(name))
        notices = {name.rpartition("/")[2] for name in archive.namelist() if "/licenses/libraries/" in name}
    assert bill["bomFormat"] == "CycloneDX"
    versions = {part["name"]: part["version"] for part in bill["components"]}
    assert {"abseil", "hiredis", "libc++", "nghttp2", "openssl", "simdjson", "zeromq3"} <= set(versions)
    assert re.match(r"3\.\d+\.\d+-", versions["openssl"])
    assert set(versions) == notices - {""}


def test_it_routes_in_an_environment_of_its_own(environment, tmp_path):
    done = run(environment / "python", "-c", EXERCISE, directory=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_command_says_its_version(environment, wheel, tmp_path):
    done = run(environment / "vllm-router", "--version", directory=tmp_path)
    assert done.returncode == 0, done.stderr
    assert wheel.name.split("-")[1] in done.stdout
