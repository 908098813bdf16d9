"""`paddlejob` as a user runs it: a process and a state folder of its own, the machine's cache of environments."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_operator.cli.training_progress import OWN_RESULT

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy/examples"
CORPUS = ROOT / "tests/corpus"
PATIENCE_SECONDS = 240.0  # less than a test has, so that what the command has said can be told
SOON_SECONDS = 100.0  # what takes a moment, unless the machine stalls


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str
    errors: str

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """What each worker printed last: `worker-0` → its PADDLE_RESULT."""
        lines = re.findall(rf"^([\w-]+) \| .*?{OWN_RESULT}(.*)$", self.output, re.MULTILINE)
        return {name: json.loads(text) for name, text in lines}

    def losses(self, pod: str) -> list[float]:
        """What a worker told on its way, in order."""
        lines = re.findall(rf"^{pod} \| .*?loss ([\d.e-]+)", self.output, re.MULTILINE)
        return [float(text) for text in lines]

    @property
    def summary(self) -> str:
        """The last line that names the job's phase."""
        return [line for line in self.output.splitlines() if "  after " in line][-1]


class Paddlejob:
    """The command, on one state folder."""

    def __init__(self, state: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.state = state
        self._patience_seconds = patience_seconds

    async def __call__(self, *arguments: str | Path, stdin: str = "", user: int | None = None) -> Outcome:
        async with self.started(*arguments, user=user) as process:
            output, errors = await asyncio.wait_for(process.communicate(stdin.encode()), self._patience_seconds)
        assert process.returncode is not None
        return Outcome(process.returncode, output.decode(), errors.decode())

    @asynccontextmanager
    async def started(
        self, *arguments: str | Path, user: int | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
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
        """A job as it is stored."""
        found: dict[str, Any] = json.loads((await self("get", name, "-o", "json")).output)
        return found

    async def runs(self, name: str) -> None:
        """Return when all pods of a job run and that is stored: what they print may be heard before."""
        async with asyncio.timeout(SOON_SECONDS):
            while (phase := (await self.json(name)).get("status", {}).get("phase", "")) != "Running":
                assert phase in ("", "Pending", "Starting"), phase


@asynccontextmanager
async def leaving_nothing(state: Path, patience_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[Paddlejob]:
    """The command for the length of a test; a process that outlives its cluster fails the test."""
    command = Paddlejob(state, patience_seconds)
    yield command
    await command("down")
    async with asyncio.timeout(SOON_SECONDS):
        while processes_of(state):
            await asyncio.sleep(0.05)


def pods_process(job_uid: str, role: str, index: int) -> int:
    """The first process of a pod, by the variables that it was given. Raises LookupError."""
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


def processes_of(state: Path) -> list[int]:
    """Every process whose environment or command line names the state folder: none may outlive its cluster."""
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
