"""vllm_router.settings.host: CPUs and memory within cgroups."""

from pathlib import Path

import pytest

from vllm_router.settings.host import available_cpus, available_memory


def cgroup_tree(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_cpus_are_bounded_by_the_quotas_of_every_group_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(64)))
    files = {"proc__self__cgroup": "0::/pod/box\n", "sys__fs__cgroup__pod__box__cpu.max": "max 100000\n"}
    assert available_cpus(cgroup_tree(tmp_path, **files)) == 64
    assert available_cpus(cgroup_tree(tmp_path, **{"sys__fs__cgroup__pod__cpu.max": "250000 100000\n"})) == 3
    assert available_cpus(cgroup_tree(tmp_path, **{"sys__fs__cgroup__cpu.max": "50000 100000\n"})) == 1


def test_cpus_are_bounded_by_a_version_1_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(64)))
    unlimited = {
        "sys__fs__cgroup__cpu__cpu.cfs_quota_us": "-1",
        "sys__fs__cgroup__cpu__cpu.cfs_period_us": "100000",
    }
    assert available_cpus(cgroup_tree(tmp_path, **unlimited)) == 64
    assert available_cpus(cgroup_tree(tmp_path, **{"sys__fs__cgroup__cpu__cpu.cfs_quota_us": "200000"})) == 2


def test_memory_is_that_of_the_machine_or_of_the_narrowest_group(tmp_path: Path) -> None:
    gib = 2**30
    files = {
        "proc__meminfo": f"MemFree: 1 kB\nMemTotal: {64 * 2**20} kB\n",
        "proc__self__cgroup": "0::/pod/box\n",
        "sys__fs__cgroup__pod__box__memory.max": "max\n",
    }
    assert available_memory(cgroup_tree(tmp_path, **files)) == 64 * gib
    group = {"sys__fs__cgroup__pod__memory.max": f"{8 * gib}\n"}
    assert available_memory(cgroup_tree(tmp_path, **group)) == 8 * gib
    version_1 = {"sys__fs__cgroup__memory__memory.limit_in_bytes": f"{4 * gib}\n"}
    assert available_memory(cgroup_tree(tmp_path, **version_1)) == 4 * gib
    assert available_memory(str(tmp_path / "nowhere")) == 0
