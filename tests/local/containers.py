"""Runs containers and commands for the tests of the sandbox, also as an unprivileged user."""

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

UNPRIVILEGED_UID = 54321  # a uid without an account, used if root runs the tests
SOURCES = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str


def make_command(*arguments: str, **fields: Any) -> Command:
    environment = {"PATH": DEFAULT_PATH, **fields.pop("environment", {})}
    return Command(arguments, environment, **fields)


async def run_in_sandbox(sandbox: LocalSandbox, *arguments: str, **fields: Any) -> Outcome:
    """Run a container until it exits. Raises StartError."""
    with tempfile.TemporaryFile() as output:
        process = await sandbox.start(make_command(*arguments, **fields), output.fileno())
        code = await process.wait()
        output.seek(0)
        return Outcome(code, output.read().decode())


async def run_shell(sandbox: LocalSandbox, script: str, **fields: Any) -> Outcome:
    return await run_in_sandbox(sandbox, "sh", "-c", script, **fields)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Poll in real time: other processes do not use the tests' clock."""
    while not condition():
        await asyncio.sleep(0.01)


def find_processes(marker: str) -> list[int]:
    """Pids of live processes, in all namespaces, whose command line contains the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command_line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in command_line:
            found.append(int(entry.name))
    return found


@contextmanager
def user_folder() -> Iterator[Path]:
    """A folder that an unprivileged user can write to; pytest's own folders are root's if root runs the tests."""
    with tempfile.TemporaryDirectory(prefix="unprivileged-") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        yield folder


def run_as_user(script: str, folder: Path) -> Any:
    """Run a Python program as an unprivileged user and decode the JSON that it prints."""
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        identity = {"user": UNPRIVILEGED_UID, "group": UNPRIVILEGED_UID, "extra_groups": []}
    result = subprocess.run(
        [python_for_user(identity), "-B", "-c", script],
        cwd=folder,
        env={"PATH": DEFAULT_PATH, "PYTHONPATH": str(SOURCES), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        **identity,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def python_for_user(identity: dict[str, Any]) -> str:
    """A Python that any user may run; the tests' own may be in root's home."""
    for path in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        try:
            result = subprocess.run(
                [path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], cwd="/", env={}, **identity
            )
        except OSError:
            continue
        if result.returncode == 0:
            return path
    raise AssertionError("no Python 3.11 that an unprivileged user may run: install one in /usr")
