"""Shows the progress of a build: one rewritten line on a terminal, a line every 15 s elsewhere."""

import sys
import time
from typing import TextIO

LINE_EVERY_SECONDS = 15.0
REWRITE = "\r\x1b[2K"  # to the start of the line, and clear it


class Progress:
    """Writes to the present sys.stderr, which pytest replaces while it captures."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._started_at = time.monotonic()
        self._printed_at = self._started_at

    def update(self, activity: str) -> None:
        """Show the present activity and the time since the start."""
        stream = self._stream or sys.stderr
        now = time.monotonic()
        text = f"{activity} ({self.elapsed})"
        if stream.isatty():
            print(REWRITE + text, end="", file=stream, flush=True)
        elif now - self._printed_at >= LINE_EVERY_SECONDS:
            print(text, file=stream, flush=True)
            self._printed_at = now

    def print_line(self, line: str) -> None:
        """Print a line that is not overwritten."""
        stream = self._stream or sys.stderr
        print((REWRITE if stream.isatty() else "") + line, file=stream, flush=True)

    @property
    def elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._started_at), 60)
        return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
