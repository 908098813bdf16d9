"""`paddlejob` for tests: as a process of its own, or called in this process, which is 1 s of CPU a command cheaper.

Both have a state directory of their own and share the machine's cache of environments.
"""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.cli.main import main
from paddle_operator.cli.training_progress import OWN_RESULT
from paddle_operator.embedded.state import State

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy/examples"
CORPUS = ROOT / "tests/corpus"
COMMAND_TIMEOUT_SECONDS = 240.0  # less than a test may take, so that the failure shows the output of the command
STEP_TIMEOUT_SECONDS = 100.0  # for steps of a second: only a stalled machine takes longer
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str
    errors: str

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The PADDLE_RESULT that each worker printed last, by the short name of its pod."""
        lines = re.findall(rf"^([\w-]+) \| .*?{OWN_RESULT}(.*)$", self.output, re.MULTILINE)
        return {name: json.loads(text) for name, text in lines}

    def losses(self, pod: str) -> list[float]:
        """The losses that a worker printed, in order."""
        lines = re.findall(rf"^{pod} \| .*?loss ([\d.e-]+)", self.output, re.MULTILINE)
        return [float(text) for text in lines]

    @property
    def summary(self) -> str:
        """The last line that names the job's phase."""
        return [line for line in self.output.splitlines() if "  after " in line][-1]


class Paddlejob:
    """The command as a process, on one state directory."""

    def __init__(self, state: Path, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> None:
        self.state = state
        self._timeout_seconds = timeout_seconds

    async def __call__(self, *arguments: str | Path, stdin: str = "", user: int | None = None) -> Outcome:
        async with self.start(*arguments, user=user) as process:
            output, errors = await asyncio.wait_for(process.communicate(stdin.encode()), self._timeout_seconds)
        assert process.returncode is not None
        return Outcome(process.returncode, output.decode(), errors.decode())

    @asynccontextmanager
    async def start(self, *arguments: str | Path, user: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "paddle_operator.cli.main",
            *map(str, arguments),
            env=environment | {"PADDLEJOB_STATE": str(self.state), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**20,
            cwd=ROOT,
            user=user,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()

    async def json(self, name: str) -> dict[str, Any]:
        """The stored job."""
        found: dict[str, Any] = json.loads((await self("get", name, "-o", "json")).output)
        return found

    async def wait_running(self, name: str) -> None:
        """Wait until the stored phase is Running; the first log lines may come earlier."""
        async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
            while (phase := (await self.json(name)).get("status", {}).get("phase", "")) != "Running":
                assert phase in ("", "Pending", "Starting"), phase


class InProcessPaddlejob:
    """The command, called in this process on one state directory."""

    def __init__(self, state: Path, capture: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.state = state
        self._capture, self._patch = capture, patch
        patch.setenv("PADDLEJOB_STATE", str(state))
        patch.delenv("KUBECONFIG", raising=False)

    def __call__(self, *arguments: str | Path, stdin: str = "") -> Outcome:
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capture.readouterr()
        code = main([*map(str, arguments)])
        return Outcome(code, *self._capture.readouterr())

    def json(self, name: str) -> dict[str, Any]:
        """The stored job."""
        found: dict[str, Any] = json.loads(self("get", name, "-o", "json").output)
        return found

    def wait_phase(self, name: str, phase: str) -> None:
        deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
        while (current := self.json(name).get("status", {}).get("phase", "")) != phase:
            assert time.monotonic() < deadline, f"{name} is {current}, not {phase}"
            time.sleep(POLL_SECONDS)


@contextmanager
def start_cluster(state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An embedded cluster in the background; a process that outlives it fails the test."""
    command = [sys.executable, "-m", "paddle_operator.embedded.process", "--state", str(state)]
    log = state.with_suffix(".log")
    with log.open("ab") as output, subprocess.Popen(command, stderr=output) as process:
        deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
        try:
            while State.find({}, state).running_cluster() is None:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(POLL_SECONDS)
            yield process
        finally:
            process.terminate()
            process.wait(STEP_TIMEOUT_SECONDS)
    wait_no_processes(state)


def wait_no_processes(state: Path) -> None:
    deadline = time.monotonic() + STEP_TIMEOUT_SECONDS
    while left := find_processes(state):
        assert time.monotonic() < deadline, f"processes {left} outlive the cluster of {state}"
        time.sleep(POLL_SECONDS)


@asynccontextmanager
async def open_paddlejob(state: Path, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS) -> AsyncIterator[Paddlejob]:
    """The command for one test; a process that outlives its cluster fails the test."""
    command = Paddlejob(state, timeout_seconds)
    yield command
    await command("down")
    async with asyncio.timeout(STEP_TIMEOUT_SECONDS):
        while find_processes(state):
            await asyncio.sleep(POLL_SECONDS)


def find_pod_process(job_uid: str, role: str, index: int) -> int:
    """The first process of a pod, found by its environment variables. Raises LookupError."""
    wanted = {f"PADDLE_JOB_ID={job_uid}", f"TRAINING_ROLE={role}", f"PADDLE_TRAINER_ID={index}"}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = set((folder / "environ").read_text(errors="replace").split("\0"))
        except OSError:
            continue
        if wanted <= variables:
            found.append(int(folder.name))
    if not found:
        raise LookupError(f"no process has {wanted}")
    return min(found)


def find_processes(state: Path) -> list[int]:
    """Every other process whose environment, command line or mounts name the state directory."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            mounts = (folder / "mountinfo").read_bytes()
        except OSError:
            continue
        if int(folder.name) != os.getpid() and str(state).encode() in text + mounts:
            found.append(int(folder.name))
    return found
