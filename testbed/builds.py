"""Builds programs once and caches them outside the repository, in a folder named by a hash of its inputs.

The first run builds; concurrent runs wait for it. A folder is complete or absent.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from testbed.progress import Progress

Filler = Callable[[Path, Progress], None]


def cache_folder(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "paddle-operator" / "testbed"


def build_once(folder: Path, fill: Filler, description: str) -> Path:
    """The folder, filled unless it exists; `description` names its content. Raises what `fill` raises."""
    if folder.exists():
        return folder
    progress = Progress()
    with hold_lock(folder.parent / f"{folder.name}.lock", description, progress):
        if not folder.exists():  # the run we waited for may have built it
            _fill_folder(folder, fill, progress)
            progress.print_line(f"{description} was built in {progress.elapsed}: {folder}")
    return folder


def _fill_folder(folder: Path, fill: Filler, progress: Progress) -> None:
    """Build beside the folder and rename, so that it is never incomplete."""
    for leftover in folder.parent.glob(f"{folder.name}.unfinished-*"):
        shutil.rmtree(leftover)  # of a killed run: we hold the lock
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.unfinished-", dir=folder.parent))
    try:
        fill(unfinished, progress)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished)
        raise


@contextmanager
def hold_lock(lock: Path, description: str, progress: Progress) -> Iterator[None]:
    """Hold a file lock, which the kernel releases even if this process is killed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.print_line(f"another run is building {description}; waiting for it ({lock})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
