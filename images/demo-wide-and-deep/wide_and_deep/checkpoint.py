"""Checkpoints of epochs in a folder that all pods share. A checkpoint is complete or absent, whenever a pod dies."""

import gzip
import shutil
import zlib
from pathlib import Path


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self) -> tuple[int, Path] | None:
        """The last saved epoch and its folder; None without a checkpoint."""
        epochs = [(int(path.name.removeprefix("epoch-")), path) for path in self.folder.glob("epoch-*[0-9]")]
        return max(epochs, default=None)

    def partial(self, epoch: int) -> Path:
        """An empty folder for an epoch that is being written; remains of an interrupted write are removed."""
        partial = self.folder / f"epoch-{epoch}.part"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        return partial

    def commit(self, partial: Path) -> None:
        """Make this the latest checkpoint and remove older ones. Raises OSError if a file is truncated."""
        for path in partial.rglob("*.gz"):
            try:
                gzip.decompress(path.read_bytes())
            except (EOFError, zlib.error) as cut_short:  # a server that cannot write only logs it
                raise OSError(f"{path} is truncated: check the free space of {self.folder}") from cut_short
        older = list(self.folder.glob("epoch-*[0-9]"))
        partial.rename(partial.with_suffix(""))
        for path in older:
            shutil.rmtree(path, ignore_errors=True)
