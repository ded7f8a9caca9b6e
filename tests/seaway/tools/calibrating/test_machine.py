"""The number of cores: what the system lets this process have, however it states that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seaway.tools.calibrating import this_machine


def group(root: Path, path: str, **files: str) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_max", ".max").replace("cpu_cfs", "cpu.cfs")).write_text(text)


def cores(root: Path, membership: str) -> float | None:
    (root / "self").write_text(membership)
    return this_machine.cgroup_cores(root, root / "self")


def test_the_narrowest_quota_above_us_applies(tmp_path: Path) -> None:
    group(tmp_path, "pod", cpu_max="200000 100000\n")
    group(tmp_path, "pod/box", cpu_max="400000 100000\n")
    assert cores(tmp_path, "0::/pod/box\n") == 2


def test_our_own_root_may_be_the_group(tmp_path: Path) -> None:
    """In a container, whose path is not visible from inside."""
    group(tmp_path, ".", cpu_max="300000 100000\n")
    assert cores(tmp_path, "0::/\n") == 3
    assert cores(tmp_path, "0::/not/here\n") == 3


def test_cgroups_of_version_one_are_read(tmp_path: Path) -> None:
    group(tmp_path, "cpu,cpuacct/box", cpu_cfs_quota_us="50000\n", cpu_cfs_period_us="100000\n")
    group(tmp_path, "memory/box", cpu_max="1 100000\n")  # not about cores
    assert cores(tmp_path, "5:memory:/box\n4:cpu,cpuacct:/box\n") == 0.5


@pytest.mark.parametrize("text", ["max 100000\n", "-1 100000\n", "", "much\n", "100000 0\n"])
def test_without_a_quota_there_is_no_limit(tmp_path: Path, text: str) -> None:
    group(tmp_path, "box", cpu_max=text)
    assert cores(tmp_path, "0::/box\n") is None


def test_a_system_without_cgroups_has_no_limit(tmp_path: Path) -> None:
    assert this_machine.cgroup_cores(tmp_path, tmp_path / "nothing") is None


@pytest.mark.parametrize(("quota", "expected"), [(None, 4), (9.0, 4), (2.5, 2), (0.5, 1)])
def test_a_quota_is_rounded_to_whole_cores_of_those_allowed(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(this_machine, "cgroup_cores", lambda: quota)
    number, words = this_machine.cores()
    assert number == expected
    assert ("quota of" in words) == (expected < 4)
