"""Reads a busy watch less often: a read costs more than the event that it returns.

Over TLS, µs of CPU an event: 110 at 333 events/s and 65 at 1,000 if each is read as it arrives, 75 and 43 if reads are
50 ms apart. A watch with few events is read at once.
"""

import asyncio

from paddle_operator.kube.http_connection import HTTPResponse

WINDOW_SECONDS = 0.05
LONG_WINDOW_SECONDS = 0.4
LONG_WINDOW_AFTER_SECONDS = 2.0  # a watch busy for this long has so many changes that no user waits for one
MAX_UNTHROTTLED_CHANGES = 5  # within a window of 50 ms
BULK_READ_BYTES = 32 * 1024  # a read this large is followed by more: waiting would only delay it (10,000 pods by 5 s)


class WatchThrottle:
    """Pauses reading after a busy window; received bytes wait in the kernel."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self._loop = asyncio.get_running_loop()  # real time, also in tests: the reads are real
        self._window_start = self._loop.time()
        self._busy_since: float | None = None
        self._changes = 0

    async def wait(self, changes: int, read_bytes: int = 0) -> None:
        """Return when the next read should happen, given the size of the last one."""
        self._changes += changes
        if read_bytes >= BULK_READ_BYTES:
            return
        now, window = self._loop.time(), self._window_seconds
        is_busy = self._changes > MAX_UNTHROTTLED_CHANGES * window / WINDOW_SECONDS
        left = self._window_start + window - now
        if left > 0 and not is_busy:
            return
        if left < -window:  # idle since
            self._busy_since = None
        self._busy_since = (self._busy_since or now) if is_busy else None
        if left > 0:
            await self._pause(left)
        self._window_start, self._changes = self._loop.time(), 0

    @property
    def _window_seconds(self) -> float:
        is_long = self._busy_since is not None and self._window_start - self._busy_since >= LONG_WINDOW_AFTER_SECONDS
        return LONG_WINDOW_SECONDS if is_long else WINDOW_SECONDS

    async def _pause(self, seconds: float) -> None:
        self._response.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._response.resume_reading()
