"""The CPUs of a process are limited by the quotas of its container."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarry.engine.process import cpus

V1 = "12:cpuset:/box\n4:cpu,cpuacct:/box/inner\n0::/elsewhere\n"


@pytest.mark.parametrize(
    ("groups", "files", "n"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),  # version 2, in a namespace of its own
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),  # that of a group above
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        (V1, {"cpu/box/inner/cpu.cfs_quota_us": "400000\n", "cpu/box/inner/cpu.cfs_period_us": "100000\n"}, 4),
        (
            V1,
            {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            2,
        ),  # mounted from the group
        (V1, {"cpu/cpu.cfs_quota_us": "many\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ("?\n", {}, 8),
        (None, {}, 8),  # no /proc
    ],
)
def test_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str | None, files: dict[str, str], n: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    if groups is not None:
        (tmp_path / "cgroup").write_text(groups, "utf-8")
    for name, content in files.items():
        path = tmp_path / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "ascii")
    assert cpus.n_cpus(tmp_path / "cgroup", tmp_path / "mounted") == n
