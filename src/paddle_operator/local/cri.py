"""The container runtime interface: the protocols of images and sandboxes that the kubelet uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Progress = Callable[[str], None]
"""Called with one short line at each step of long work."""

DEFAULT_PATH = (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # unless the image or the pod sets another
)


@dataclass(frozen=True)
class Mount:
    """A file or directory of the host inside the container."""

    source: Path
    target: str  # an absolute path, which need not exist on the host
    read_only: bool = False


@dataclass(frozen=True)
class Image:
    """The configuration and files of an image, as far as a process without a container engine can use them."""

    name: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    programs: tuple[Path, ...] = ()  # directories that come first in PATH: bin of the virtual environment
    mounts: tuple[Mount, ...] = ()  # copied for each container, which may write there


class ImageError(Exception):
    """The image is not available; `reason` is kubelet's (ErrImagePull, InvalidImageName), str() the message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ImageSource(Protocol):
    async def find(self, name: str, progress: Progress) -> Image:
        """Return the image; build it first if it is not in the cache. Raises ImageError."""


@dataclass(frozen=True)
class Command:
    """One container as a process: variables are expanded, volumes are directories."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str = "/"
    host_name: str = ""
    hosts: str = ""  # the content of /etc/hosts; empty for the host's
    mounts: tuple[Mount, ...] = ()
    user: int = 0  # the uid inside the container
    memory_bytes: int | None = None
    scratch: Path | None = None  # what the container writes outside its volumes


class StartError(Exception):
    """The process could not be started: the program is missing, or the host refuses. str() is the message."""


class Process(Protocol):
    pid: int
    out_of_memory: bool  # whether the memory limit ended it

    async def wait(self) -> int:
        """Return the exit code (128 + n after signal n) once no process of the container is left."""

    def terminate(self) -> None:
        """Send SIGTERM to the container's first process only, as a container engine does."""

    def kill(self) -> None:
        """Send SIGKILL to all processes of the container."""


class Sandbox(Protocol):
    async def start(self, command: Command, output: int) -> Process:
        """Start a process that prints to the descriptor `output`, which the caller closes. Raises StartError."""
