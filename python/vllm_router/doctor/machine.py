"""Versions, limits and CPU features of this machine. `root` is another root directory, for tests."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from vllm_router._version import __version__
from vllm_router.doctor.finding import Finding
from vllm_router.settings.host import _cgroups, available_cpus, available_memory

ADVISED_FILES = 65_536  # two for each request in flight
FEATURES = ("sse4_2", "avx2", "avx512f", "aes", "pclmulqdq", "sha_ni")


def findings(root: str = "/") -> Iterator[Finding]:
    """All of them."""
    yield from versions()
    yield from limits(root)
    yield from cpu(root)


def versions() -> Iterator[Finding]:
    """Of what runs here."""
    yield Finding("versions", "vllm-router", "ok", __version__)
    try:
        importlib.import_module("vllm_router._core")
    except ImportError as error:
        remedy = "install a wheel for this Python and platform, or build with pip install ."
        yield Finding("versions", "C++ extension", "error", f"cannot be imported: {error}", remedy)
    else:
        yield Finding("versions", "C++ extension", "ok", "can be imported")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("versions", "Python", "ok", python)
    yield Finding("versions", "platform", "ok", f"{platform.system()} {platform.machine()}")
    yield Finding("versions", "kernel", "ok", platform.release())
    yield Finding("versions", "C library", "ok", " ".join(platform.libc_ver()).strip() or "unknown")
    try:
        numpy = importlib.metadata.version("numpy")
    except importlib.metadata.PackageNotFoundError:
        numpy = "not installed"
    yield Finding("versions", "numpy", "ok", numpy)


def limits(root: str = "/") -> Iterator[Finding]:
    """Of open files, CPUs, memory and sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"soft {_limit(soft)}, hard {_limit(hard)} (the router raises soft to hard)"
    if 0 <= hard < ADVISED_FILES:
        remedy = (
            f"two are needed for each request in flight; allow {ADVISED_FILES}: LimitNOFILE= or ulimit -Hn"
        )
        yield Finding("limits", "open files", "warning", found, remedy)
    else:
        yield Finding("limits", "open files", "ok", found)
    affinity = len(os.sched_getaffinity(0))
    yield Finding("limits", "CPUs", "ok", f"{available_cpus(root)} usable, {affinity} by affinity")
    yield Finding("limits", "memory", "ok", f"{available_memory(root) // 2**20} MiB usable")
    for name in ("cpu.max", "memory.max"):
        value = _read("/", str(_cgroups(Path(root))[0] / name))
        yield Finding("limits", f"cgroup {name}", "ok", value or "not set")
    backlog = _read(root, "proc/sys/net/core/somaxconn")
    if backlog.isdigit() and int(backlog) < 1024:
        remedy = "bursts of connections may be dropped; sysctl -w net.core.somaxconn=4096"
        yield Finding("limits", "somaxconn", "warning", backlog, remedy)
    else:
        yield Finding("limits", "somaxconn", "ok", backlog or "unknown")
    ports = _read(root, "proc/sys/net/ipv4/ip_local_port_range").split()
    if len(ports) == 2 and int(ports[1]) - int(ports[0]) < 10_000:
        remedy = "each connection to a worker takes one; sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
        yield Finding("limits", "ephemeral ports", "warning", " to ".join(ports), remedy)
    else:
        yield Finding("limits", "ephemeral ports", "ok", " to ".join(ports) or "unknown")


def cpu(root: str = "/") -> Iterator[Finding]:
    """Features of the processor, by their names in /proc/cpuinfo."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", _read(root, "proc/cpuinfo"), re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    present = [name for name in FEATURES if name in known]
    yield Finding("CPU", "features", "ok", " ".join(present) or "none of those looked for")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _read(root: str, path: str) -> str:
    try:
        return (Path(root) / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
