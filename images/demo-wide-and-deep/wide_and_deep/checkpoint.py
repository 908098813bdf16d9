"""Which epochs are kept in a folder that all pods share. An epoch is there whole or not at all, whenever a pod dies."""

import gzip
import shutil
import zlib
from pathlib import Path


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self) -> tuple[int, Path] | None:
        """The last epoch that was kept, and where; None if there is none to go on from."""
        kept = [(int(path.name.removeprefix("epoch-")), path) for path in self.folder.glob("epoch-*[0-9]")]
        return max(kept, default=None)

    def part(self, epoch: int) -> Path:
        """Where an epoch is written until it is whole. Nothing is left there of a pod that died while it wrote."""
        part = self.folder / f"epoch-{epoch}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        return part

    def keep(self, part: Path) -> None:
        """From now on this is the latest; older ones go. Raises OSError if not all of it could be written."""
        for path in part.rglob("*.gz"):
            try:
                gzip.decompress(path.read_bytes())
            except (EOFError, zlib.error) as cut_short:  # a server that cannot write says so only in its log
                raise OSError(f"{path} was not written to its end: is there room in {self.folder}?") from cut_short
        older = list(self.folder.glob("epoch-*[0-9]"))
        part.rename(part.with_suffix(""))
        for path in older:
            shutil.rmtree(path, ignore_errors=True)
