"""What is a container's root made of, where there is no image to unpack? The machine's own root, with other things in
their places.

A mount point that the machine lacks must not be made on the machine: the folder above it is taken apart, that is, made
anew in memory with each of its entries bound into it. Decided here, done by inside.py.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddle_operator.local.cri import Command, Mount, StartError

Step = tuple[str, ...]
"""("folder" | "file" | "proc", target), ("link", target, to), ("text", target, text), ("tmpfs", target, options), or
("show" | "bind" | "bind read-only", target, source), of which "show" may fail, or
("layer", target, source, upper, work), where what is written goes to the folder `upper`."""

_LINKS = 40  # as many as the kernel follows


@dataclass(frozen=True)
class Place:
    """Something that stands at a path of the container whatever the machine has there."""

    target: str
    kind: str  # bind, bind read-only, layer, tmpfs, proc, text or folder
    source: str = ""  # the path of a bind or a layer, the options of a tmpfs, the text
    folder: bool = True
    more: tuple[str, ...] = ()  # the two folders of a layer

    @property
    def bound(self) -> bool:
        return self.kind.startswith("bind") or self.kind == "layer"


@dataclass
class Layout:
    machine: str = "/"
    places: list[Place] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)  # folder of the container → the folder whose entries it shows
    missing: set[str] = field(default_factory=set)  # mount points to be made

    def add(self, place: Place) -> None:
        """Raises StartError where a file stands in the way."""
        target = self.resolved(place.target)
        if target == "/":
            raise StartError("a volume cannot be mounted at /: mount it in a folder")
        place = replace(place, target=target)
        self.places = [other for other in self.places if other.target != target]  # what is asked for later wins
        if not self.has_room_for(place):
            self.missing.add(target)
        self.places.append(place)

    def make_folder(self, path: str) -> None:
        """A folder that need only be there, such as where a program starts; what is in it is left as it is."""
        folder = Place(self.resolved(path), "folder")
        if folder.target == "/" or any(place.target == folder.target for place in self.places):
            return
        if not self.has_room_for(folder):
            self.missing.add(folder.target)
            self.places.append(folder)

    def has_room_for(self, place: Place) -> bool:
        """Whether its mount point is there; where not, the folders above it are noted to be taken apart."""
        above, source = self.above(place.target)
        if source is None:
            return False
        path, here, seen = above.target if above else "", source, []
        within = place.target[len(path) + 1 :].split("/")
        for number, name in enumerate(within):
            seen.append((path, here))
            path, here = f"{path}/{name}", os.path.join(here, name)
            last = number == len(within) - 1
            if not os.path.lexists(here):
                if above and above.kind == "bind" and os.access(seen[-1][1], os.W_OK):
                    return False  # in a volume that is theirs the mount point is made, as container engines do
                self.apart.update((folder or "/", shown) for folder, shown in seen)
                return False
            if os.path.isdir(here) != (place.folder if last else True):
                stands, wanted = ("folder", "file") if os.path.isdir(here) else ("file", "folder")
                raise StartError(f"{path} has to be a {wanted}, but a {stands} stands there: mount it elsewhere")
        return True

    def above(self, target: str) -> tuple[Place | None, str | None]:
        """The place that the path lies in, and the folder of the machine behind it, None where there is none."""
        around = [place for place in self.places if target.startswith(place.target + "/")]
        if not around:
            return None, self.machine
        nearest = max(around, key=lambda place: len(place.target))
        return nearest, nearest.source if nearest.bound else None

    def resolved(self, target: str) -> str:
        """The path with its symbolic links followed as the container will see them."""
        left, path, links = target.split("/"), "", 0
        while left:
            name = left.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                path = path.rpartition("/")[0]
                continue
            candidate = f"{path}/{name}"
            link = self.link_at(candidate)
            if link is None:
                path = candidate
                continue
            links += 1
            if links > _LINKS:
                raise StartError(f"{target} leads through too many symbolic links")
            path = "" if link.startswith("/") else path
            left = [*link.split("/"), *left]
        return path or "/"

    def link_at(self, path: str) -> str | None:
        if any(place.target == path for place in self.places):
            return None
        above, source = self.above(path)
        if source is None:
            return None
        behind = os.path.join(source, path[len(above.target) + 1 if above else 1 :])
        return os.readlink(behind) if os.path.islink(behind) else None

    def steps(self) -> Iterator[Step]:
        self.apart.setdefault("/", self.machine)
        yield from self.entries_of("/")
        for place in sorted(self.places, key=lambda place: place.target.split("/")):
            parent = place.target.rpartition("/")[0] or "/"
            if place.target in self.missing or parent in self.apart:
                yield ("folder" if place.folder else "file", place.target)
            if place.bound and place.target in self.apart:
                yield ("tmpfs", place.target, "mode=0755")
                yield from self.entries_of(place.target, place.kind)
            elif place.kind == "proc":
                yield ("proc", place.target)
            elif place.kind != "folder":
                yield (place.kind, place.target, place.source, *place.more)

    def entries_of(self, folder: str, kind: str = "show") -> Iterator[Step]:
        """Each entry of a folder that is taken apart, in a folder that is already the container's own."""
        taken = {place.target for place in self.places}
        try:
            entries = sorted(os.scandir(self.apart[folder]), key=lambda entry: entry.name)
        except OSError as error:
            raise StartError(f"{folder} cannot be listed, but a mount point has to be made in it: {error}") from None
        for entry in entries:
            path = f"{folder.rstrip('/')}/{entry.name}"
            if path in taken:
                continue
            if entry.is_symlink():
                yield ("link", path, os.readlink(entry.path))
            elif not entry.is_dir():
                yield ("file", path)
                yield (kind, path, entry.path)
            else:
                yield ("folder", path)
                if path in self.apart:
                    yield from self.entries_of(path, kind)
                else:
                    yield (kind, path, entry.path)


def steps(command: Command, shown: Sequence[Path] = (), machine: str = "/") -> list[Step]:
    """How the root of a command's container is made. Raises StartError.

    `shown` are folders of the machine that every container needs and none may change: the cache of environments. What a
    container writes there goes to its scratch folder.
    """
    layout = Layout(machine)
    asked = [*own_places(command, machine), *protected(shown, command.scratch), *map(place_of, command.mounts)]
    # Twice: links of the machine decide the order, links within volumes are known only once these are in their places.
    for place in sorted(asked, key=lambda place: layout.resolved(place.target).split("/")):
        layout.add(place)
    layout.make_folder(command.working_directory)
    return list(layout.steps())


def own_places(command: Command, machine: str) -> Iterator[Place]:
    """What every container has for itself: /proc, /tmp, /dev/shm, its names, and a home that it can write to."""
    yield Place("/proc", "proc")
    yield Place("/dev/shm", "tmpfs", "mode=1777")  # noqa: S108 -- the container's
    for number, path in enumerate(("/tmp", "/var/tmp")):  # noqa: S108 -- the container's
        if command.scratch:
            folder = command.scratch / f"tmp-{number}"
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o1777)
            yield Place(path, "bind", str(folder.resolve()))
        else:
            yield Place(path, "tmpfs", "mode=1777")
    if not os.access(os.path.join(machine, "root"), os.R_OK | os.W_OK | os.X_OK):
        yield Place("/root", "tmpfs", "mode=0700")
    if command.hosts:
        yield Place("/etc/hosts", "text", command.hosts, folder=False)
    if command.host_name and os.path.exists(os.path.join(machine, "etc/hostname")):
        yield Place("/etc/hostname", "text", f"{command.host_name}\n", folder=False)


def protected(shown: Sequence[Path], scratch: Path | None) -> Iterator[Place]:
    for number, path in enumerate(shown):
        if not path.exists():
            continue
        source, target = str(path.resolve()), str(path.absolute())
        if scratch is None or not path.is_dir():
            yield Place(target, "bind read-only", source, path.is_dir())
            continue
        folders = [scratch / f"{name}-{number}" for name in ("upper", "work")]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield Place(target, "layer", source, more=tuple(str(folder.resolve()) for folder in folders))


def place_of(mount: Mount) -> Place:
    if not mount.target.startswith("/"):
        raise StartError(f"mount path {mount.target!r} is not absolute: it must start with /")
    try:
        source = mount.source.resolve(strict=True)
    except OSError as error:
        raise StartError(f"{mount.source}, to be mounted at {mount.target}, cannot be used: {error.strerror}") from None
    return Place(mount.target, "bind read-only" if mount.read_only else "bind", str(source), source.is_dir())
