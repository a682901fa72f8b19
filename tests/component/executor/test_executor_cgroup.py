"""Limits as the kernel writes them, versions 1 and 2, on a made-up file tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.executor.host.cgroup import Allowance, allowance


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_nothing_limits_where_there_is_no_cgroup(root: Path) -> None:
    assert allowance(root) == Allowance()


def test_version_2_takes_the_tightest_of_a_group_and_its_parents(root: Path) -> None:
    put(
        root,
        {
            "proc/self/cgroup": "0::/box/inner\n",
            "sys/fs/cgroup/box/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/box/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
            "sys/fs/cgroup/box/inner/cpu.max": "max 100000\n",
            "sys/fs/cgroup/box/memory.max": "max\n",
            "sys/fs/cgroup/box/inner/memory.max": "1000000\n",
            "sys/fs/cgroup/box/inner/memory.current": "700000\n",
            "sys/fs/cgroup/box/inner/memory.stat": "anon 1\ninactive_file 200000\n",
        },
    )
    assert allowance(root) == Allowance(
        cpu_cores=1.5, cpu_seconds=2.5, memory_bytes=1_000_000, memory_used_bytes=500_000
    )


def test_inside_a_container_the_mount_itself_is_the_group(root: Path) -> None:
    put(
        root,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/memory.max": "123456\n",
        },
    )
    found = allowance(root)
    assert (found.cpu_cores, found.memory_bytes) == (0.5, 123_456)


def test_version_1(root: Path) -> None:
    put(
        root,
        {
            "proc/self/cgroup": "4:memory:/box\n2:cpuacct:/box\n1:cpu:/box\n0::/\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpuacct/box/cpuacct.usage": "3000000000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "5000000\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "4000000\n",
            "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 1000000\n",
        },
    )
    assert allowance(root) == Allowance(
        cpu_cores=2.0, cpu_seconds=3.0, memory_bytes=5_000_000, memory_used_bytes=3_000_000
    )


def test_version_1_inside_a_container_counts_its_own_use_not_the_machines(root: Path) -> None:
    put(
        root,
        {
            "proc/self/cgroup": "2:cpuacct:/docker/1d\n1:cpu:/docker/1d\n0::/docker/1d\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpuacct/cpuacct.usage": "6000000000\n",
        },
    )
    found = allowance(root)
    assert (found.cpu_cores, found.cpu_seconds) == (2.0, 6.0)


def test_version_1_without_a_limit(root: Path) -> None:
    put(
        root,
        {
            "proc/self/cgroup": "4:memory:/\n1:cpu,cpuacct:/\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert allowance(root) == Allowance()


def test_this_machine_can_be_read() -> None:
    found = allowance()
    assert found.cpu_cores is None or found.cpu_cores > 0
    assert found.memory_bytes is None or found.memory_bytes > 0
