"""Which mounts make up a container's root filesystem, where there is no image to unpack?

The root is the host's own root with entries replaced. A mount point that the host lacks must not be created on the
host: its parent directory is rebuilt on a tmpfs, with each entry bind-mounted. This module decides, shim.py acts.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddle_operator.local.cri import Command, Mount, StartError

Step = tuple[str, ...]
"""One of:

("directory" | "file" | "proc", target)
("link", target, link target)
("text", target, content)
("tmpfs", target, mount options)
("bind" | "bind-read-only" | "bind-optional", target, source): only "bind-optional" may fail
("overlay", target, source, upper, work): writes go to the directory `upper`
"""

MAX_SYMLINKS = 40  # as many as the kernel follows


@dataclass(frozen=True)
class RootEntry:
    """An entry of the container's root that covers whatever the host has at the same path."""

    target: str
    kind: str  # bind, bind-read-only, overlay, tmpfs, proc, text or directory
    source: str = ""  # the path of a bind or an overlay, the options of a tmpfs, the text
    directory: bool = True
    overlay_directories: tuple[str, ...] = ()  # upper and work

    @property
    def has_host_source(self) -> bool:
        return self.kind.startswith("bind") or self.kind == "overlay"


@dataclass
class RootfsLayout:
    host_root: str = "/"
    entries: list[RootEntry] = field(default_factory=list)
    rebuilt: dict[str, str] = field(default_factory=dict)  # container directory → host directory whose entries it shows
    missing_mount_points: set[str] = field(default_factory=set)

    def add(self, entry: RootEntry) -> None:
        """Add an entry; a later entry replaces an earlier one. Raises StartError on a file/directory mismatch."""
        target = self.resolve(entry.target)
        if target == "/":
            raise StartError("a volume cannot be mounted at /: mount it at a directory below /")
        entry = replace(entry, target=target)
        self.entries = [other for other in self.entries if other.target != target]
        if not self.find_mount_point(entry):
            self.missing_mount_points.add(target)
        self.entries.append(entry)

    def ensure_directory(self, path: str) -> None:
        """Make sure that a directory exists, such as the working directory; its content is not changed."""
        directory = RootEntry(self.resolve(path), "directory")
        if directory.target == "/" or any(entry.target == directory.target for entry in self.entries):
            return
        if not self.find_mount_point(directory):
            self.missing_mount_points.add(directory.target)
            self.entries.append(directory)

    def find_mount_point(self, entry: RootEntry) -> bool:
        """Return whether the entry's mount point exists; if not, mark its parent directories to be rebuilt."""
        enclosing, source = self.enclosing(entry.target)
        if source is None:
            return False
        path, host_path, parents = enclosing.target if enclosing else "", source, []
        components = entry.target[len(path) + 1 :].split("/")
        for number, name in enumerate(components):
            parents.append((path, host_path))
            path, host_path = f"{path}/{name}", os.path.join(host_path, name)
            last = number == len(components) - 1
            if not os.path.lexists(host_path):
                if enclosing and enclosing.kind == "bind" and os.access(parents[-1][1], os.W_OK):
                    return False  # in a writable volume the mount point is created, as container engines do
                self.rebuilt.update((directory or "/", source) for directory, source in parents)
                return False
            if os.path.isdir(host_path) != (entry.directory if last else True):
                existing, expected = ("directory", "file") if os.path.isdir(host_path) else ("file", "directory")
                raise StartError(f"{path} must be a {expected}, but is a {existing}: choose another mount path")
        return True

    def enclosing(self, target: str) -> tuple[RootEntry | None, str | None]:
        """The nearest entry above the path, and the host directory behind that entry (None for a tmpfs)."""
        enclosing_entries = [entry for entry in self.entries if target.startswith(entry.target + "/")]
        if not enclosing_entries:
            return None, self.host_root
        nearest = max(enclosing_entries, key=lambda entry: len(entry.target))
        return nearest, nearest.source if nearest.has_host_source else None

    def resolve(self, target: str) -> str:
        """Follow symbolic links as the container will see them. Raises StartError after MAX_SYMLINKS."""
        pending, path, links = target.split("/"), "", 0
        while pending:
            name = pending.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                path = path.rpartition("/")[0]
                continue
            candidate = f"{path}/{name}"
            link = self.read_link(candidate)
            if link is None:
                path = candidate
                continue
            links += 1
            if links > MAX_SYMLINKS:
                raise StartError(f"{target} leads through too many symbolic links")
            path = "" if link.startswith("/") else path
            pending = [*link.split("/"), *pending]
        return path or "/"

    def read_link(self, path: str) -> str | None:
        if any(entry.target == path for entry in self.entries):
            return None
        enclosing, source = self.enclosing(path)
        if source is None:
            return None
        host_path = os.path.join(source, path[len(enclosing.target) + 1 if enclosing else 1 :])
        return os.readlink(host_path) if os.path.islink(host_path) else None

    def steps(self) -> Iterator[Step]:
        self.rebuilt.setdefault("/", self.host_root)
        yield from self.rebuild_steps("/")
        for entry in sorted(self.entries, key=lambda entry: entry.target.split("/")):
            parent = entry.target.rpartition("/")[0] or "/"
            if entry.target in self.missing_mount_points or parent in self.rebuilt:
                yield ("directory" if entry.directory else "file", entry.target)
            if entry.has_host_source and entry.target in self.rebuilt:
                yield ("tmpfs", entry.target, "mode=0755")
                yield from self.rebuild_steps(entry.target, entry.kind)
            elif entry.kind == "proc":
                yield ("proc", entry.target)
            elif entry.kind != "directory":
                yield (entry.kind, entry.target, entry.source, *entry.overlay_directories)

    def rebuild_steps(self, directory: str, kind: str = "bind-optional") -> Iterator[Step]:
        """Recreate each entry of a rebuilt directory inside the container's own directory."""
        occupied = {entry.target for entry in self.entries}
        try:
            entries = sorted(os.scandir(self.rebuilt[directory]), key=lambda entry: entry.name)
        except OSError as error:
            raise StartError(f"cannot list {directory} to create a mount point in it: {error}") from None
        for entry in entries:
            path = f"{directory.rstrip('/')}/{entry.name}"
            if path in occupied:
                continue
            if entry.is_symlink():
                yield ("link", path, os.readlink(entry.path))
            elif not entry.is_dir():
                yield ("file", path)
                yield (kind, path, entry.path)
            else:
                yield ("directory", path)
                if path in self.rebuilt:
                    yield from self.rebuild_steps(path, kind)
                else:
                    yield (kind, path, entry.path)


def rootfs_steps(command: Command, read_only_paths: Sequence[Path] = (), host_root: str = "/") -> list[Step]:
    """The steps that build the root of a container. Raises StartError.

    `read_only_paths` are host directories that every container reads and none may change, such as the cache of virtual
    environments. What a container writes there goes to its scratch directory.
    """
    layout = RootfsLayout(host_root)
    requested = [
        *default_entries(command, host_root),
        *protected_entries(read_only_paths, command.scratch),
        *map(volume_entry, command.mounts),
    ]
    # Paths are resolved twice: the host's links decide the order; links within volumes are known once those are added.
    for entry in sorted(requested, key=lambda entry: layout.resolve(entry.target).split("/")):
        layout.add(entry)
    layout.ensure_directory(command.working_directory)
    return list(layout.steps())


def default_entries(command: Command, host_root: str) -> Iterator[RootEntry]:
    """What each container has of its own: /proc, /tmp, /dev/shm, host name files and a writable home directory."""
    yield RootEntry("/proc", "proc")
    yield RootEntry("/dev/shm", "tmpfs", "mode=1777")  # noqa: S108 -- the container's
    for number, path in enumerate(("/tmp", "/var/tmp")):  # noqa: S108 -- the container's
        if command.scratch:
            directory = command.scratch / f"tmp-{number}"
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(0o1777)
            yield RootEntry(path, "bind", str(directory.resolve()))
        else:
            yield RootEntry(path, "tmpfs", "mode=1777")
    if not os.access(os.path.join(host_root, "root"), os.R_OK | os.W_OK | os.X_OK):
        yield RootEntry("/root", "tmpfs", "mode=0700")
    if command.hosts:
        yield RootEntry("/etc/hosts", "text", command.hosts, directory=False)
    if command.host_name and os.path.exists(os.path.join(host_root, "etc/hostname")):
        yield RootEntry("/etc/hostname", "text", f"{command.host_name}\n", directory=False)


def protected_entries(read_only_paths: Sequence[Path], scratch: Path | None) -> Iterator[RootEntry]:
    for number, path in enumerate(read_only_paths):
        if not path.exists():
            continue
        source, target = str(path.resolve()), str(path.absolute())
        if scratch is None or not path.is_dir():
            yield RootEntry(target, "bind-read-only", source, path.is_dir())
            continue
        directories = [scratch / f"{name}-{number}" for name in ("upper", "work")]
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
        yield RootEntry(
            target, "overlay", source, overlay_directories=tuple(str(directory.resolve()) for directory in directories)
        )


def volume_entry(mount: Mount) -> RootEntry:
    if not mount.target.startswith("/"):
        raise StartError(f"mount path {mount.target!r} is not absolute: start it with /")
    try:
        source = mount.source.resolve(strict=True)
    except OSError as error:
        raise StartError(f"cannot mount {mount.source} at {mount.target}: {error.strerror}") from None
    return RootEntry(mount.target, "bind-read-only" if mount.read_only else "bind", str(source), source.is_dir())
