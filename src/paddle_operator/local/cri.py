"""The face between who decides what a container is (pods, images, volumes) and who makes a process of it (sandbox)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Progress = Callable[[str], None]
"""Told one short line whenever there is something new about long work."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # where nobody says another


@dataclass(frozen=True)
class Mount:
    """A file or folder of the machine as the container sees it."""

    source: Path
    target: str  # an absolute path, which need not exist on the machine
    read_only: bool = False


@dataclass(frozen=True)
class Image:
    """What an image says about a container, as far as no container engine is needed for it."""

    name: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    programs: tuple[Path, ...] = ()  # folders that come first in PATH: the environment's bin
    mounts: tuple[Mount, ...] = ()  # copied for each container, since what it writes there is its own


class ImageError(Exception):
    """An image that cannot be had; `reason` is kubelet's word (ErrImagePull, InvalidImageName), str() a sentence."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Images(Protocol):
    async def find(self, name: str, progress: Progress) -> Image:
        """The image, made first where it is not in the cache. Raises ImageError."""


@dataclass(frozen=True)
class Command:
    """One container as a process, everything decided: variables are expanded, volumes are folders."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str = "/"
    host_name: str = ""
    hosts: str = ""  # the text of /etc/hosts; empty leaves the machine's
    mounts: tuple[Mount, ...] = ()
    user: int = 0  # the uid that the process sees
    memory_bytes: int | None = None
    scratch: Path | None = None  # a folder of this container's own, for what it writes outside its volumes


class StartError(Exception):
    """The process could not be started: no such program, or the machine refuses. str() is a sentence."""


class Process(Protocol):
    pid: int
    out_of_memory: bool  # whether the memory limit ended it

    async def wait(self) -> int:
        """The exit code; 128 + n after signal n. When it returns, nothing that the process started is left."""

    def terminate(self) -> None:
        """SIGTERM, to the container's first process only, as a container engine does."""

    def kill(self) -> None:
        """SIGKILL to everything in the container."""


class Sandbox(Protocol):
    async def start(self, command: Command, output: int) -> Process:
        """Standard output and error go to the descriptor `output`, which stays the caller's. Raises StartError."""
