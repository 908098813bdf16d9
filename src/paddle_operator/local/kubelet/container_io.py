"""Reads a process's output as it comes: one end of a pipe is the process's, the other one is read here."""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace

from paddle_operator.kube.clock import Clock, within
from paddle_operator.local.cri import Command, Sandbox

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
OUTPUT_DRAIN_SECONDS = 1.0
MAX_EXEC_OUTPUT_BYTES = 10 * 1024


class OutputPipe:
    """`write_end` is for the process; `on_data` gets what it prints."""

    def __init__(self, on_data: Callable[[bytes], None]) -> None:
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._at_eof = asyncio.Event()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop.add_reader(self._read_end, self._read)

    def close_write_end(self) -> None:
        """Close this process's copy, once the child has its own or could not be started."""
        os.close(self.write_end)

    async def drain(self, clock: Clock) -> None:
        """Read what is still in the pipe after the process has exited, and close it."""
        try:
            await within(clock, OUTPUT_DRAIN_SECONDS, self._at_eof.wait())
        except TimeoutError:
            log.warning("output still open after container exit")
        finally:
            self.close()

    def close(self) -> None:
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1

    def _read(self) -> None:
        try:
            data = os.read(self._read_end, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._on_data(data)
        else:
            self._loop.remove_reader(self._read_end)
            self._at_eof.set()


async def run_command(sandbox: Sandbox, command: Command, clock: Clock) -> tuple[int, str]:
    """Return the exit code and the beginning of the output. Raises StartError; if cancelled, it kills the command."""
    printed = bytearray()
    output = OutputPipe(lambda data: printed.extend(data[: MAX_EXEC_OUTPUT_BYTES - len(printed)]))
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
            output.close_write_end()
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
