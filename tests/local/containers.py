"""What the tests of the sandbox start, by whom, and what came of it."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddle_operator.local.cri import DEFAULT_PATH, Command
from paddle_operator.local.sandbox.sandbox import LocalSandbox

SOMEBODY = 54321  # a uid without an account, for what an ordinary user sees when root runs the tests
SOURCES = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str


def a_command(*arguments: str, **fields: Any) -> Command:
    environment = {"PATH": DEFAULT_PATH, **fields.pop("environment", {})}
    return Command(arguments, environment, **fields)


async def ran(sandbox: LocalSandbox, *arguments: str, **fields: Any) -> Outcome:
    """A container's whole life. Raises StartError."""
    with tempfile.TemporaryFile() as output:
        process = await sandbox.start(a_command(*arguments, **fields), output.fileno())
        code = await process.wait()
        output.seek(0)
        return Outcome(code, output.read().decode())


async def shell(sandbox: LocalSandbox, script: str, **fields: Any) -> Outcome:
    return await ran(sandbox, "sh", "-c", script, **fields)


async def until(condition: Callable[[], bool]) -> None:
    """For what other processes do: no clock of ours moves it."""
    while not condition():
        await asyncio.sleep(0.01)


def processes_with(mark: str) -> list[int]:
    """Pids of live processes, in whichever namespace, that have the mark in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in words:
            found.append(int(entry.name))
    return found


@contextmanager
def folder_of_somebody() -> Iterator[Path]:
    """A folder that an ordinary user may reach and write to, which pytest's own are not when root runs the tests."""
    with tempfile.TemporaryDirectory(prefix="of-somebody-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, SOMEBODY, SOMEBODY)
        yield folder


def as_somebody(script: str, folder: Path) -> Any:
    """What a Python program prints as JSON when an ordinary user runs it: we ourselves, unless we are root."""
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": SOMEBODY, "group": SOMEBODY, "extra_groups": []}
    done = subprocess.run(
        [python_for_somebody(identity), "-B", "-c", script],
        cwd=folder,
        env={"PATH": DEFAULT_PATH, "PYTHONPATH": str(SOURCES), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        **identity,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def python_for_somebody(identity: dict[str, Any]) -> str:
    """A Python that everybody may run: ours may lie in root's home."""
    for path in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            asked = subprocess.run(
                [path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], cwd="/", env={}, **identity
            )
        except OSError:
            continue
        if asked.returncode == 0:
            return path
    raise AssertionError("no Python 3.11 that an ordinary user may run is on this machine: install one in /usr")
