"""How often is a busy stream read? A read costs more than the event that it brings, so that many are read at once.

Measured over TLS: 110 µs an event at 333 events/s and 65 at 1,000 where each is read as it comes, 75 and 43 where
reads are 50 ms apart. A stream that brings little is read at once.
"""

import asyncio

from paddle_operator.kube.http_connection import Reply

WINDOW_SECONDS = 0.05
LONG_WINDOW_SECONDS = 0.4
LASTING_SECONDS = 2.0  # a stream that is busy for so long tells of so many objects that nobody waits for one of them
FEW = 5  # changes within a window of 50 ms: nobody is kept waiting for these
MUCH = 32 * 1024  # bytes in one read: there is more to come, and a pause would only hold it up (10,000 pods by 5 s)


class WatchThrottle:
    """Rests after what was read, if that was much for so short a time; the server's bytes wait in the kernel."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._loop = asyncio.get_running_loop()  # real time: it is a stream that is waited for, and no clock of a test
        self._window_at = self._loop.time()
        self._busy_since: float | None = None
        self._changes = 0

    async def rest(self, changes: int, read_bytes: int = 0) -> None:
        self._changes += changes
        if read_bytes >= MUCH:
            return
        now, window = self._loop.time(), self._window_seconds
        many = self._changes > FEW * window / WINDOW_SECONDS
        left = self._window_at + window - now
        if left > 0 and not many:
            return
        if left < -window:  # silence since
            self._busy_since = None
        self._busy_since = (self._busy_since or now) if many else None
        if left > 0:
            await self._pause(left)
        self._window_at, self._changes = self._loop.time(), 0

    @property
    def _window_seconds(self) -> float:
        lasts = self._busy_since is not None and self._window_at - self._busy_since >= LASTING_SECONDS
        return LONG_WINDOW_SECONDS if lasts else WINDOW_SECONDS

    async def _pause(self, seconds: float) -> None:
        self._reply.hold()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._reply.resume_reading()
