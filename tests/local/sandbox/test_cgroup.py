"""Memory limits: on fake cgroup trees, and on this machine's own cgroups where that is allowed."""

import os
import sys
from pathlib import Path

import pytest

from paddle_operator.local.sandbox.cgroup import CgroupsUnavailable, MemoryCgroups
from paddle_operator.local.sandbox.sandbox import NamespaceSandbox, PlainSandbox
from tests.local.containers import make_command

ALLOCATE_4X_LIMIT = (
    "held = [bytearray(1 << 20) for _ in range(256)]"  # four times the limit, and no more if there is none
)


def make_cgroup_v2(folder: Path, *, controllers: str = "cpu memory", limit: str = "max") -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.subtree_control").write_text(controllers)
    (folder / "cgroup.procs").touch()
    (folder / "memory.max").write_text(limit)
    return folder


def test_cgroup_is_created_beside_our_own(tmp_path: Path) -> None:
    slices = make_cgroup_v2(tmp_path / "app.slice")
    own = make_cgroup_v2(slices / "terminal.scope", controllers="")
    group = MemoryCgroups(own).create(1000)
    assert group.procs_file.parent.parent == slices


def test_cgroup_never_escapes_a_parent_limit(tmp_path: Path) -> None:
    slices = make_cgroup_v2(tmp_path / "app.slice")
    own = make_cgroup_v2(slices / "terminal.scope", controllers="", limit="4294967296")
    with pytest.raises(CgroupsUnavailable, match="no part of the tree"):
        MemoryCgroups(own)


def test_only_stale_cgroups_are_removed(tmp_path: Path) -> None:
    own = make_cgroup_v2(tmp_path / "own")
    live, dead, other = (own / f"paddle-operator-{name}" for name in (f"{os.getpid()}-0", "4194305-1", "of-somebody"))
    for folder in (live, dead, other):
        folder.mkdir()
    MemoryCgroups(own)
    assert live.exists()
    assert other.exists()
    assert not dead.exists()


def test_cgroup_names_are_unique_in_a_process(tmp_path: Path) -> None:
    own = make_cgroup_v2(tmp_path / "own")
    one, two = (MemoryCgroups(own).create(1000) for _ in range(2))
    assert one.procs_file != two.procs_file


def test_oom_is_read_from_both_cgroup_versions(tmp_path: Path) -> None:
    group = MemoryCgroups(make_cgroup_v2(tmp_path / "own")).create(1000)
    folder = group.procs_file.parent
    assert not group.out_of_memory()
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert not group.out_of_memory()
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    assert group.out_of_memory()


@pytest.mark.parametrize("kind", ["namespaces", "plain"])
async def test_memory_limit_kills_and_is_reported(kind: str, tmp_path: Path) -> None:
    sandbox = NamespaceSandbox() if kind == "namespaces" else PlainSandbox("a test disables namespaces")
    limitations = [
        note
        for note in sandbox.limitations
        if note.startswith("Memory limits of containers are not enforced, because ")
    ]
    if limitations:  # a machine that delegates nothing to us: all that can be promised is that it is said
        assert os.geteuid() != 0, f"root can make groups: {limitations}"
        return
    with (tmp_path / "output").open("wb") as output:
        command = make_command(sys.executable, "-c", ALLOCATE_4X_LIMIT, memory_bytes=64 << 20)
        process = await sandbox.start(command, output.fileno())
        assert await process.wait() == 137
        assert process.out_of_memory
        modest = await sandbox.start(make_command("true", memory_bytes=64 << 20), output.fileno())
        assert await modest.wait() == 0
        assert not modest.out_of_memory
    assert remaining_cgroups() == []


def remaining_cgroups() -> list[Path]:
    names = (  # by a walk that does not mind groups of others that go meanwhile
        Path(folder, name) for folder, below, _ in os.walk("/sys/fs/cgroup") for name in below
    )
    return [path for path in names if path.name.startswith(f"paddle-operator-{os.getpid()}-")]
