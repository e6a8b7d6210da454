"""A Debian 12 that debootstrap made, in which commands run by chroot: what a fresh machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE = ROOT / "build" / "chroots" / "bookworm"
# How this machine reaches its archives; a chroot is on the same network.
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
NETWORK_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "PIP_CERT", "PIP_INDEX_URL", "SSL_CERT_FILE")
CHROOT = shutil.which("chroot") or "/usr/sbin/chroot"  # found here, not by the PATH of what runs in it
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_base() -> Path:
    """What debootstrap makes, once."""
    made = BASE.with_suffix(".made")
    if not made.exists():
        shutil.rmtree(BASE, ignore_errors=True)
        BASE.mkdir(parents=True)
        subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", BASE], check=True
        )
        made.touch()
    return BASE


class Chroot:
    """A directory as `/`. `environment`: of its commands, besides what reaches the network."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.user = "0:0"
        self.directory = "/"
        self.environment = {"PATH": DEFAULT_PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}

    def inside(self, path: str) -> Path:
        """Where a path of the chroot is."""
        return self.path / path.lstrip("/")

    def _command(self, command: str) -> list[str]:
        return [
            CHROOT,
            f"--userspec={self.user}",
            str(self.path),
            "/bin/sh",
            "-c",
            f"cd '{self.directory}' && {command}",
        ]

    def _environment(self) -> Mapping[str, str]:
        network = {name: os.environ[name] for name in NETWORK_VARIABLES if name in os.environ}
        return network | self.environment

    def run(self, command: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """A shell's command; with `check` it must succeed."""
        done = subprocess.run(
            self._command(command),
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert not check or done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done

    def start(self, command: str) -> subprocess.Popen[str]:
        """The same in the background, as the first process of the command itself; its output is a pipe."""
        return subprocess.Popen(
            self._command(f"exec {command}"),
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@contextmanager
def chroot(path: Path) -> Iterator[Chroot]:
    """A fresh copy of the base at `path`, removed in the end."""
    subprocess.run(["cp", "-a", "--reflink=auto", make_base(), path], check=True)
    for name in NETWORK_FILES:
        shutil.copy(name, path / name.lstrip("/"))
    subprocess.run(["mount", "-t", "proc", "proc", path / "proc"], check=True)
    try:
        yield Chroot(path)
    finally:
        subprocess.run(["umount", path / "proc"], check=True)
        shutil.rmtree(path)
