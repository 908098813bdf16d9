"""What is going on, for a person who waits: one line that is rewritten on a terminal, a line now and then elsewhere."""

import sys
import time
from typing import TextIO

LINE_EVERY_SECONDS = 15.0
REWRITE = "\r\x1b[2K"  # to the start of the line, and clear it


class Progress:
    """Written to standard error, as it is at that moment: pytest puts another one in its place while it captures."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._began_at = time.monotonic()
        self._printed_at = self._began_at

    def show(self, what: str) -> None:
        """What is being done now, with the time since the start."""
        stream = self._stream or sys.stderr
        now = time.monotonic()
        text = f"{what} ({self.elapsed})"
        if stream.isatty():
            print(REWRITE + text, end="", file=stream, flush=True)
        elif now - self._printed_at >= LINE_EVERY_SECONDS:
            print(text, file=stream, flush=True)
            self._printed_at = now

    def say(self, sentence: str) -> None:
        """A sentence that stays."""
        stream = self._stream or sys.stderr
        print((REWRITE if stream.isatty() else "") + sentence, file=stream, flush=True)

    @property
    def elapsed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began_at), 60)
        return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"
