"""How much memory may a container use? A group of the kernel (cgroup, version 1 or 2) keeps it below its limit.

A group is made below our own, or beside it where the kernel wants that and no limit of ours would be escaped. An
ordinary user may do so where the system has delegated a part of the tree, as systemd does for a desktop's session.
"""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"paddle-operator-(\d+)-\d+")
_numbers = itertools.count(1)  # of this process, which may have several sandboxes


class NoGroups(Exception):
    """This machine lets us make no groups; str() says why, to be put after "because"."""


class MemoryGroup:
    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """Raises OSError where the kernel refuses."""
        folder.mkdir()
        self._folder = folder
        try:
            self._set_limit(limit_bytes)
        except OSError:
            folder.rmdir()
            raise

    @property
    def members(self) -> Path:
        """What to write "0" to in order to join."""
        return self._folder / "cgroup.procs"

    def _set_limit(self, limit_bytes: int) -> None:
        if (self._folder / "memory.max").exists():
            _write(self._folder / "memory.max", limit_bytes)
            for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):  # as kubelet does
                with suppress(OSError):
                    _write(self._folder / name, value)
            return
        _write(self._folder / "memory.limit_in_bytes", limit_bytes)
        with suppress(OSError):  # where the kernel does not count swap
            _write(self._folder / "memory.memsw.limit_in_bytes", limit_bytes)

    def out_of_memory(self) -> bool:
        """Whether the kernel has ended something in here because of the limit."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(line.split() for line in (self._folder / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        with suppress(OSError):  # what is left is found by the next supervisor
            self._folder.rmdir()


class MemoryGroups:
    def __init__(self, own: Path | None = None) -> None:
        """Raises NoGroups. `own` is the folder of the group to start from, found by itself where it is not given."""
        self._parent = next(iter(_parents(own or _own_group())), None) or _refuse()
        _remove_left_behind(self._parent)
        try:
            self.make(1 << 30).remove()
        except OSError as error:
            raise NoGroups(f"{self._parent}: {error.strerror}") from None

    def make(self, limit_bytes: int) -> MemoryGroup:
        return MemoryGroup(self._parent / f"paddle-operator-{os.getpid()}-{next(_numbers)}", limit_bytes)


def _refuse() -> Path:
    raise NoGroups("no part of the tree of memory cgroups is delegated to this user")


def _parents(own: Path) -> Iterator[Path]:
    """Where a group can be made, nearest first."""
    if (own / "memory.limit_in_bytes").exists():
        if os.access(own, os.W_OK):
            yield own
        return
    group = own
    while (group / "cgroup.subtree_control").exists():
        if "memory" in (group / "cgroup.subtree_control").read_text().split() and _may_fill(group):
            yield group
        limit = group / "memory.max"
        if limit.exists() and limit.read_text().strip() != "max":
            return  # beside it a container would escape that limit
        group = group.parent


def _may_fill(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def _own_group() -> Path:
    """The folder of our own memory group. Raises NoGroups."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        raise NoGroups("this system has no cgroups") from None
    for _, controllers, path in sorted(groups, key=lambda group: group[1] == ""):  # version 1 first, if it has memory
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if (kind == "cgroup" and controllers and "memory" in options) or (kind == "cgroup2" and not controllers):
                return Path(mount[4]) / os.path.relpath(path, mount[3])
    raise NoGroups("no memory cgroup is mounted")


def _remove_left_behind(parent: Path) -> None:
    """The empty groups of supervisors that were killed."""
    for folder in parent.glob("paddle-operator-*"):
        name = _NAME.fullmatch(folder.name)
        if name and not Path(f"/proc/{name[1]}").exists():
            with suppress(OSError):
                folder.rmdir()


def _write(path: Path, value: int) -> None:
    with path.open("w") as file:
        file.write(str(value))
