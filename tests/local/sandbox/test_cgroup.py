"""Memory limits: on trees of folders that look like the kernel's, and on this machine's own where that is allowed."""

import os
import sys
from pathlib import Path

import pytest

from paddle_operator.local.sandbox.cgroup import MemoryGroups, NoGroups
from paddle_operator.local.sandbox.sandbox import NamespaceSandbox, PlainSandbox
from tests.local.containers import a_command

TAKE = "held = [bytearray(1 << 20) for _ in range(256)]"  # four times the limit, and no more if there is none


def version_2(folder: Path, *, controllers: str = "cpu memory", limit: str = "max") -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.subtree_control").write_text(controllers)
    (folder / "cgroup.procs").touch()
    (folder / "memory.max").write_text(limit)
    return folder


def test_beside_our_own_group_where_that_may_have_no_groups_below_it(tmp_path: Path) -> None:
    slices = version_2(tmp_path / "app.slice")
    own = version_2(slices / "terminal.scope", controllers="")
    group = MemoryGroups(own).make(1000)
    assert group.members.parent.parent == slices


def test_never_beside_a_group_whose_limit_would_be_escaped(tmp_path: Path) -> None:
    slices = version_2(tmp_path / "app.slice")
    own = version_2(slices / "terminal.scope", controllers="", limit="4294967296")
    with pytest.raises(NoGroups, match="no part of the tree"):
        MemoryGroups(own)


def test_groups_of_killed_supervisors_are_removed_and_those_of_live_ones_are_kept(tmp_path: Path) -> None:
    own = version_2(tmp_path / "own")
    live, dead, other = (own / f"paddle-operator-{name}" for name in (f"{os.getpid()}-0", "4194305-1", "of-somebody"))
    for folder in (live, dead, other):
        folder.mkdir()
    MemoryGroups(own)
    assert live.exists()
    assert other.exists()
    assert not dead.exists()


def test_groups_of_two_sandboxes_of_one_process_are_apart(tmp_path: Path) -> None:
    own = version_2(tmp_path / "own")
    one, two = (MemoryGroups(own).make(1000) for _ in range(2))
    assert one.members != two.members


def test_whether_memory_ran_out_is_read_from_either_version(tmp_path: Path) -> None:
    group = MemoryGroups(version_2(tmp_path / "own")).make(1000)
    folder = group.members.parent
    assert not group.out_of_memory()
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert not group.out_of_memory()
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n")
    assert group.out_of_memory()


@pytest.mark.parametrize("kind", ["in namespaces", "plainly"])
async def test_a_container_that_takes_more_than_its_limit_is_ended_and_says_so(kind: str, tmp_path: Path) -> None:
    sandbox = NamespaceSandbox() if kind == "in namespaces" else PlainSandbox("a test says so")
    told = [note for note in sandbox.notes if note.startswith("Memory limits of containers are not enforced, because ")]
    if told:  # a machine that delegates nothing to us: all that can be promised is that it is said
        assert os.geteuid() != 0, f"root can make groups: {told}"
        return
    with (tmp_path / "output").open("wb") as output:
        command = a_command(sys.executable, "-c", TAKE, memory_bytes=64 << 20)
        process = await sandbox.start(command, output.fileno())
        assert await process.wait() == 137
        assert process.out_of_memory
        modest = await sandbox.start(a_command("true", memory_bytes=64 << 20), output.fileno())
        assert await modest.wait() == 0
        assert not modest.out_of_memory
    assert groups_left() == []


def groups_left() -> list[Path]:
    names = (  # by a walk that does not mind groups of others that go meanwhile
        Path(folder, name) for folder, below, _ in os.walk("/sys/fs/cgroup") for name in below
    )
    return [path for path in names if path.name.startswith(f"paddle-operator-{os.getpid()}-")]
