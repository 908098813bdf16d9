"""One server of a control plane as a test sees it: its pid, and stop, kill and start with the same flags as before."""

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
READY_WITHIN_SECONDS = 90.0  # 3 s on an idle machine; two cores that also compile need more
POLL_SECONDS = 0.02
GRACE_SECONDS = 4.0  # between SIGTERM and SIGKILL; an API server with open watches needs 1.2 s


class StartError(RuntimeError):
    """A server did not become ready; str() has the end of its log."""


class AddressTakenError(StartError):
    """Another process has taken a port between our look at it and the server's bind: other ports will do."""


class Supervision:
    """The owner's end of the pipe to the supervisor process; closing it ends every server."""

    def __init__(self, directory: Path, grace_seconds: float = GRACE_SECONDS) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(SUPERVISOR), str(directory), str(grace_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C in the terminal is not for it
        )
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, **request: Any) -> Any:
        """The supervisor's answer. Raises StartError with its reason if it cannot do what is asked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with self._one_at_a_time, suppress(BrokenPipeError, ValueError):  # it is gone, or the pipe is closed
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise StartError("the supervisor of the control plane is gone, and its servers with it: start a new one")
        answer = json.loads(line)
        if "error" in answer:
            raise StartError(answer["error"])
        return answer

    def close(self) -> None:
        """Let go of the pipe and wait until all servers have ended and the directory is removed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # a supervisor that was killed has left an unread request in the pipe
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Supervised:
    """Servers that end when the block is left, or by `end`."""

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision

    def end(self) -> None:
        """End all servers and remove their data; returns when nothing is left."""
        self._supervision.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Server:
    """One program with its flags. It is ready when `is_ready` says so and the process is still there.

    Every wait is done in a thread, so that a test's own tasks go on meanwhile.
    """

    def __init__(
        self, supervision: Supervision, command: Sequence[str | Path], log: Path, is_ready: Callable[[], bool]
    ) -> None:
        self.command = [str(part) for part in command]
        self.name = Path(self.command[0]).name
        self.log = log
        self.pid = 0
        self.disturbed = False  # by a test: stopped or killed since it was last known to be well
        self._supervision = supervision
        self._is_ready = is_ready

    def launch(self) -> None:
        """Start the process and do not wait for it to be ready. Raises StartError."""
        self.pid = self._supervision.ask(do="start", name=self.name, command=self.command, log=str(self.log))["pid"]

    def wait_until_ready(self) -> None:
        """Return when the server answers. Raises AddressTakenError, or StartError if it exits or takes too long."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while True:
            # Asked before its exit code is looked at: an answer counts only if it can have been this process's.
            answers = self._is_ready()
            if self.exit_code is not None:
                raise self._failure(f"exited with code {self.exit_code} before it was ready")
            if answers:
                return
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready within {READY_WITHIN_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    @property
    def exit_code(self) -> int | None:
        """None while the process runs; minus the number of the signal that ended it."""
        code: int | None = self._supervision.ask(do="look", name=self.name)["exit_code"]
        return code

    async def start(self) -> None:
        """Start it again, on the same port and with the same data, and wait until it is ready. Raises StartError."""
        self.launch()
        await asyncio.to_thread(self.wait_until_ready)

    async def stop(self) -> None:
        """Ask it to end (SIGTERM), and make it after the grace period of the supervisor."""
        self.disturbed = True
        await asyncio.to_thread(self._supervision.ask, do="stop", name=self.name)

    async def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self.disturbed = True
        await asyncio.to_thread(self._supervision.ask, do="kill", name=self.name)

    def _failure(self, what: str) -> StartError:
        lines = self.log.read_text(errors="replace").splitlines()[-12:]
        kind = AddressTakenError if any("address already in use" in line for line in lines) else StartError
        return kind("\n    ".join([f"{self.name} {what}; the end of its log:", *lines]))
