"""The state of a training in a file that is whole at any moment, whenever a pod dies."""

import os
from pathlib import Path
from typing import Any

import paddle


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "training.pdstate"

    def load(self) -> dict[str, Any] | None:
        """What was saved last; None if nothing was."""
        return paddle.load(str(self.path)) if self.path.exists() else None

    def save(self, state: dict[str, Any]) -> None:
        """Written beside it and then put in its place, so that what was there before is lost only to what is whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        paddle.save(state, str(part))
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(self.path)
