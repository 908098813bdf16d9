"""The server processes of a control plane: start, stop, kill and restart with the same flags."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SUPERVISOR = Path(__file__).with_name("supervisor.py")
READY_TIMEOUT_SECONDS = 90.0  # 3 s on an idle machine; two cores that also compile need more
POLL_SECONDS = 0.02
GRACE_SECONDS = 4.0  # between SIGTERM and SIGKILL; an API server with open watches needs 1.2 s


class ServerStartError(RuntimeError):
    """A server did not become ready; the message has the end of its log."""


class PortInUseError(ServerStartError):
    """Another process took the port after it was found free and before the server bound it: retry with other ports."""


class SupervisorClient:
    """The owner's end of the pipe to the supervisor process; closing it terminates every server."""

    def __init__(self, directory: Path, grace_seconds: float = GRACE_SECONDS) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(SUPERVISOR), str(directory), str(grace_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal must not reach it
        )
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, **request: Any) -> Any:
        """Send a request and return the response. Raises ServerStartError with the error of the supervisor."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with self._lock, suppress(BrokenPipeError, ValueError):  # the process has ended, or the pipe is closed
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise ServerStartError("the supervisor of the control plane and its servers have ended: start a new one")
        response = json.loads(line)
        if "error" in response:
            raise ServerStartError(response["error"])
        return response

    def close(self) -> None:
        """Close the pipe and wait until all servers have ended and the directory is removed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # a killed supervisor has left an unread request in the pipe
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class SupervisedServers:
    """Servers that are terminated by `close` or at the end of the `with` block."""

    def __init__(self, supervision: SupervisorClient) -> None:
        self._supervision = supervision

    def close(self) -> None:
        """Terminate all servers and remove their data; returns when both are done."""
        self._supervision.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ServerProcess:
    """One program with its flags. It is ready when `is_ready` returns True and the process still runs.

    Every wait runs in a thread, so that it does not block the tasks of the test.
    """

    def __init__(
        self, supervision: SupervisorClient, command: Sequence[str | Path], log: Path, is_ready: Callable[[], bool]
    ) -> None:
        self.command = [str(part) for part in command]
        self.name = Path(self.command[0]).name
        self.log = log
        self.pid = 0
        self.disturbed = False  # stopped or killed by a test since it was last known to be healthy
        self._supervision = supervision
        self._is_ready = is_ready

    def launch(self) -> None:
        """Start the process without waiting until it is ready. Raises ServerStartError."""
        self.pid = self._supervision.request(action="start", name=self.name, command=self.command, log=str(self.log))[
            "pid"
        ]

    def wait_until_ready(self) -> None:
        """Return when the server is ready. Raises PortInUseError, or ServerStartError if it exits or takes too long."""
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while True:
            # Probed before the exit code is read: a response counts only if it came from this process.
            is_ready = self._is_ready()
            if self.exit_code is not None:
                raise self._failure(f"exited with code {self.exit_code} before it was ready")
            if is_ready:
                return
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready within {READY_TIMEOUT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    @property
    def exit_code(self) -> int | None:
        """None while the process runs; the negated signal number if a signal ended it."""
        code: int | None = self._supervision.request(action="poll", name=self.name)["exit_code"]
        return code

    async def start(self) -> None:
        """Restart it with the same port and data, and wait until it is ready. Raises ServerStartError."""
        self.launch()
        await asyncio.to_thread(self.wait_until_ready)

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace period of the supervisor."""
        self.disturbed = True
        await asyncio.to_thread(self._supervision.request, action="stop", name=self.name)

    async def kill(self) -> None:
        """Send SIGKILL, as a crash would end it."""
        self.disturbed = True
        await asyncio.to_thread(self._supervision.request, action="kill", name=self.name)

    def _failure(self, what: str) -> ServerStartError:
        lines = self.log.read_text(errors="replace").splitlines()[-12:]
        kind = PortInUseError if any("address already in use" in line for line in lines) else ServerStartError
        return kind("\n    ".join([f"{self.name} {what}; the end of its log:", *lines]))
