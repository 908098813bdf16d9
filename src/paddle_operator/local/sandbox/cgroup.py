"""How is a container's memory limit enforced? By a cgroup, version 1 or 2.

The cgroup is created below that of this process. Where the kernel forbids that, it is a sibling that escapes no limit.
An ordinary user may create one where the system has delegated a subtree, as systemd does for a desktop session.
"""

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CGROUP_NAME = re.compile(r"paddle-operator-(\d+)-\d+")
_sequence = itertools.count(1)  # shared by all sandboxes of this process


class CgroupsUnavailable(Exception):
    """No cgroup can be created on this host; str() is the reason, to follow "because"."""


class MemoryCgroup:
    def __init__(self, directory: Path, limit_bytes: int) -> None:
        """Create the cgroup. Raises OSError where the kernel refuses."""
        directory.mkdir()
        self._directory = directory
        try:
            self._set_limit(limit_bytes)
        except OSError:
            directory.rmdir()
            raise

    @property
    def procs_file(self) -> Path:
        """A process joins by writing "0" to this file."""
        return self._directory / "cgroup.procs"

    def _set_limit(self, limit_bytes: int) -> None:
        if (self._directory / "memory.max").exists():
            _write(self._directory / "memory.max", limit_bytes)
            for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):  # as kubelet does
                with suppress(OSError):
                    _write(self._directory / name, value)
            return
        _write(self._directory / "memory.limit_in_bytes", limit_bytes)
        with suppress(OSError):  # where the kernel does not count swap
            _write(self._directory / "memory.memsw.limit_in_bytes", limit_bytes)

    def out_of_memory(self) -> bool:
        """Whether the kernel has OOM-killed a process of this cgroup."""
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(line.split() for line in (self._directory / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> None:
        with suppress(OSError):  # the next supervisor removes a cgroup that is left behind
            self._directory.rmdir()


class MemoryCgroups:
    def __init__(self, own: Path | None = None) -> None:
        """`own` is the cgroup to start from, by default that of this process. Raises CgroupsUnavailable."""
        self._parent = next(iter(_candidate_parents(own or _own_cgroup())), None) or _raise_not_delegated()
        _remove_stale(self._parent)
        try:
            self.create(1 << 30).remove()
        except OSError as error:
            raise CgroupsUnavailable(f"{self._parent}: {error.strerror}") from None

    def create(self, limit_bytes: int) -> MemoryCgroup:
        return MemoryCgroup(self._parent / f"paddle-operator-{os.getpid()}-{next(_sequence)}", limit_bytes)


def _raise_not_delegated() -> Path:
    raise CgroupsUnavailable("no part of the tree of memory cgroups is delegated to this user")


def _candidate_parents(own: Path) -> Iterator[Path]:
    """Cgroups below which one can be created, nearest first."""
    if (own / "memory.limit_in_bytes").exists():
        if os.access(own, os.W_OK):
            yield own
        return
    group = own
    while (group / "cgroup.subtree_control").exists():
        if "memory" in (group / "cgroup.subtree_control").read_text().split() and _is_writable(group):
            yield group
        limit = group / "memory.max"
        if limit.exists() and limit.read_text().strip() != "max":
            return  # in a sibling a container would escape this limit
        group = group.parent


def _is_writable(group: Path) -> bool:
    return os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK)


def _own_cgroup() -> Path:
    """The directory of this process's memory cgroup. Raises CgroupsUnavailable."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        raise CgroupsUnavailable("this system has no cgroups") from None
    for _, controllers, path in sorted(groups, key=lambda group: group[1] == ""):  # version 1 first, if it has memory
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if (kind == "cgroup" and controllers and "memory" in options) or (kind == "cgroup2" and not controllers):
                return Path(mount[4]) / os.path.relpath(path, mount[3])
    raise CgroupsUnavailable("no memory cgroup is mounted")


def _remove_stale(parent: Path) -> None:
    """Remove the empty cgroups of supervisors that were killed."""
    for directory in parent.glob("paddle-operator-*"):
        name = _CGROUP_NAME.fullmatch(directory.name)
        if name and not Path(f"/proc/{name[1]}").exists():
            with suppress(OSError):
                directory.rmdir()


def _write(path: Path, value: int) -> None:
    with path.open("w") as file:
        file.write(str(value))
