"""Programs that are built once and kept outside the repository, in a folder whose name tells what it is made of.

Whoever comes first builds; others wait for it. A folder is there as a whole or not at all.
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


def build_once(folder: Path, fill: Filler, what: str) -> Path:
    """The folder, filled unless it is there already; `what` is in it, in words. Raises what `fill` raises."""
    if folder.exists():
        return folder
    progress = Progress()
    with alone(folder.parent / f"{folder.name}.lock", what, progress):
        if not folder.exists():  # the one we may have waited for has made it
            _fill_folder(folder, fill, progress)
            progress.say(f"{what} was built in {progress.elapsed}: {folder}")
    return folder


def _fill_folder(folder: Path, fill: Filler, progress: Progress) -> None:
    """Build beside the folder and rename: it is there as a whole or not at all."""
    for leftover in folder.parent.glob(f"{folder.name}.unfinished-*"):
        shutil.rmtree(leftover)  # of a run that was killed; we hold the lock, so nobody works there
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.unfinished-", dir=folder.parent))
    try:
        fill(unfinished, progress)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished)
        raise


@contextmanager
def alone(lock: Path, what: str, progress: Progress) -> Iterator[None]:
    """Hold a lock that the kernel gives back even if we are killed."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say(f"another run is building {what}; waiting for it ({lock})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
