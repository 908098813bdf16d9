"""Training state in a file that is replaced atomically, so that it is complete whenever a pod dies."""

import os
from pathlib import Path
from typing import Any

import paddle


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "training.pdstate"

    def load(self) -> dict[str, Any] | None:
        """Load the last saved state; None without a checkpoint."""
        return paddle.load(str(self.path)) if self.path.exists() else None

    def save(self, state: dict[str, Any]) -> None:
        """Write a temporary file and rename it over the old checkpoint."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".part")
        paddle.save(state, str(partial))
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(self.path)
