"""What a process prints, as it comes: a pipe whose one end is the process's and whose other end is read here."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace

from paddle_operator.kube.clock import Clock, within
from paddle_operator.local.cri import Command, Sandbox

log = logging.getLogger(__name__)

READ_AT_ONCE = 64 * 1024
DRAINED_WITHIN_SECONDS = 1.0
MOST_KEPT = 10 * 1024


class Output:
    """`write_end` is for the process; `take` gets what it prints."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop.add_reader(self._read_end, self._read)

    def handed_over(self) -> None:
        """The process has its own copy of the end that is written to, or there will be no process."""
        os.close(self.write_end)

    async def drain(self, clock: Clock) -> None:
        """Take what is still in the pipe after the process has ended, and close it."""
        try:
            await within(clock, DRAINED_WITHIN_SECONDS, self._ended.wait())
        except TimeoutError:
            log.warning("a process outlives its container and keeps its output open")
        finally:
            self.close()

    def close(self) -> None:
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1

    def _read(self) -> None:
        try:
            data = os.read(self._read_end, READ_AT_ONCE)
        except BlockingIOError:
            return
        if data:
            self._take(data)
        else:
            self._loop.remove_reader(self._read_end)
            self._ended.set()


async def executed(sandbox: Sandbox, command: Command, clock: Clock) -> tuple[int, str]:
    """The exit code of a command, and the beginning of what it printed. Raises StartError; cancelled, it kills."""
    printed = bytearray()
    output = Output(lambda data: printed.extend(data[: MOST_KEPT - len(printed)]))
    try:
        starting = asyncio.ensure_future(sandbox.start(replace(command, memory_bytes=None), output.write_end))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            process = await starting
            process.kill()
            await process.wait()
            raise
        finally:
            output.handed_over()
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        await output.drain(clock)
    finally:
        output.close()
    return code, printed.decode(errors="replace")
