"""What of this machine the process may use: CPUs and memory, within the limits of its cgroups.

    available_cpus()       4
    available_memory()     8589934592

Reads a few files of /proc and /sys/fs/cgroup at each call. `root` is another root directory, for tests.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from pathlib import Path


def available_cpus(root: str = "/") -> int:
    """How many CPUs this process may use: its affinity and its cgroup's quota, rounded up, at least 1."""
    cpus = len(os.sched_getaffinity(0))
    for quota in _cgroup_quotas(Path(root)):
        cpus = min(cpus, max(1, math.ceil(quota)))
    return cpus


def available_memory(root: str = "/") -> int:
    """How many bytes this process may use: the machine's, or what its cgroup allows."""
    top = Path(root)
    limits = []
    files = [directory / "memory.max" for directory in _cgroups(top)]
    for file in [*files, top / "sys/fs/cgroup/memory/memory.limit_in_bytes"]:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
            limits.append(int(file.read_text()))
    try:
        total = re.search(r"^MemTotal: +([0-9]+) kB$", (top / "proc/meminfo").read_text(), re.MULTILINE)
        limits += [int(total[1]) * 1024] if total else []
    except OSError:
        pass
    return min(limits, default=0)


def _cgroups(root: Path) -> list[Path]:
    """The process's cgroup of version 2 and those above it."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    path = next((line[3:] for line in groups if line.startswith("0::")), "/")
    top = root / "sys/fs/cgroup"
    group = top / path.lstrip("/")
    return [directory for directory in [group, *group.parents] if directory.is_relative_to(top)]


def _cgroup_quotas(root: Path) -> list[float]:
    """CPU quotas of the process's cgroup and those above it, in CPUs; version 2, else version 1."""
    quotas = []
    for directory in _cgroups(root):
        try:
            quota, period = (directory / "cpu.max").read_text().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):
            pass
    try:
        cpu = root / "sys/fs/cgroup/cpu"
        quota_us = int((cpu / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            quotas.append(quota_us / int((cpu / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):
        pass
    return quotas
