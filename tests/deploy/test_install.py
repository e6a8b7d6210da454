"""The wheel and the source archive on a fresh Debian 12, and the container's stages there."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.chroot import ROOT, Chroot, chroot
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]

COMPILERS = ("cc", "gcc", "g++", "c++", "clang", "make")


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Chroot]:
    with chroot(tmp_path / "debian") as debian:
        yield debian


@contextlib.contextmanager
def started(debian: Chroot, command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command that says on which port it listens; SIGTERM in the end."""
    process = debian.start(command)
    try:
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                yield process, int(found[1])
                return
        raise AssertionError(f"{command} never listened: {''.join(lines)}")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def chat(port: int) -> None:
    """It is answered."""
    body = {"model": "simulated-model", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert json.load(response)["choices"]


@contextlib.contextmanager
def serving(debian: Chroot, command: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The router before two simulated workers, ready."""
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(started(debian, f"{command} simulate-worker --port 0"))[1] for _ in range(2)
        ]
        urls = " ".join(f"http://127.0.0.1:{port}" for port in ports)
        router, port = stack.enter_context(started(debian, f"{command} --port 0 --worker-urls {urls}"))

        def ready() -> bool:
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/readiness", timeout=5).status == 200
            return False

        eventually(ready, "the router is never ready", 30)
        yield router, port


def route_some(debian: Chroot, command: str) -> float:
    """Until the first request is routed, in seconds."""
    begun = time.monotonic()
    with serving(debian, command) as (_, port):
        chat(port)
        return time.monotonic() - begun


def wheel_for(version: str) -> Path:
    found = list((ROOT / "dist").glob(f"vllm_router-*-cp{version}-*.whl"))
    assert len(found) == 1, f"dist/ holds {len(found)} wheels for cp{version}; `make wheel` makes one"
    return found[0]


def test_a_wheel_serves_where_there_is_no_compiler(debian, capsys):
    debian.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv")
    for compiler in COMPILERS:
        assert debian.run(f"command -v {compiler}", check=False).returncode != 0
    wheel = wheel_for("311")
    shutil.copy(wheel, debian.inside("/tmp"))
    begun = time.monotonic()
    debian.run(f"python3 -m venv /opt/router && /opt/router/bin/pip install --quiet /tmp/{wheel.name}")
    installed = time.monotonic() - begun
    routed = route_some(debian, "/opt/router/bin/vllm-router")
    with capsys.disabled():
        print(f"\nwheel, fresh Debian 12: installed in {installed:.1f} s, first request {routed:.1f} s later")


def test_the_source_archive_names_what_is_missing_and_builds_with_it(debian, tmp_path, capsys):
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.copy(archive, debian.inside("/tmp"))
    debian.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 python3-venv")
    install = f"/opt/router/bin/pip install /tmp/{archive.name}"
    debian.run("python3 -m venv /opt/router")
    refused = debian.run(install, check=False)
    assert refused.returncode != 0
    said = refused.stdout + refused.stderr
    (line,) = set(re.findall(r"^\s*apt-get install (.*\S)\s*$", said, re.MULTILINE))
    debian.run(f"apt-get install -y -qq --no-install-recommends {line}")
    begun = time.monotonic()
    debian.run(install, timeout=3000)  # once what it asked for is there, nothing else is missing
    built = time.monotonic() - begun
    routed = route_some(debian, "/opt/router/bin/vllm-router")
    with capsys.disabled():
        print(
            f"\nsource archive, fresh Debian 12: built in {built:.0f} s, first request {routed:.1f} s later"
        )


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Its instructions with their values, lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE).replace("\\\n", "")
    for line in filter(str.strip, text.splitlines()):
        name, _, value = line.partition(" ")
        yield name, value.strip()


def build_context(target: Path) -> None:
    """What git knows of, as `docker build` would copy it."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def test_the_container_file_makes_what_serves_and_stops(tmp_path, capsys):
    settings: dict[str, str] = {}
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        stages: dict[str, Chroot] = {}
        debian: Chroot | None = None
        for name, value in instructions((ROOT / "deploy" / "Dockerfile").read_text()):
            if name == "FROM":
                base, _, stage = value.partition(" AS ")
                assert base == "debian:12-slim"
                debian = stages[stage] = stack.enter_context(chroot(tmp_path / f"stage-{len(stages)}"))
                continue
            assert debian is not None
            if name == "RUN":
                debian.run(value, timeout=3000)
            elif name == "WORKDIR":
                debian.inside(value).mkdir(parents=True)
                debian.directory = value
            elif name == "COPY" and value == ". .":
                build_context(debian.inside(debian.directory))
            elif name == "COPY":
                source, target = re.fullmatch(r"--from=wheel (\S+) (\S+)", value).groups()
                shutil.copytree(stages["wheel"].inside(source), debian.inside(target))
            elif name == "ENV":
                debian.environment |= dict(re.findall(r"(\w+)=(\S+)", value))
            elif name == "USER":
                debian.user = value
            else:
                settings[name] = value
        assert debian is not None
        built = time.monotonic() - begun
        assert settings["STOPSIGNAL"] == "SIGTERM"
        (command,) = json.loads(settings["ENTRYPOINT"])
        probe = " ".join(json.loads(settings["HEALTHCHECK"].partition("CMD ")[2]))
        # Nobody owns a file there, so that a root that is read-only changes nothing.
        writable = debian.run("find /opt /usr /etc -xdev -writable -not -type l | head", check=False).stdout
        assert writable == ""
        assert debian.run(probe, check=False).returncode == 1
        with serving(debian, command) as (router, port):
            chat(port)
            debian.environment["VLLM_ROUTER_PROBE_URL"] = f"http://127.0.0.1:{port}"
            debian.run(probe)
            router.terminate()
            assert router.wait(30) == 0
        debian.user = "0:0"
        size = int(debian.run("du -sk --exclude=/proc /").stdout.split()[0]) / 1024
    with capsys.disabled():
        print(f"\ncontainer's stages: built in {built:.0f} s, {size:.0f} MiB")
