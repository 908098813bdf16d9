"""Which Python does a base image mean? `python:3.11…` that minor version if installed, else the running one."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_PYTHON_IMAGE = re.compile(r"(?:.*/)?python:3\.(\d+)(?:\D.*)?")
_PRINT_VERSION = "import sys; print(sys.executable); print('%d.%d.%d' % sys.version_info[:3])"
_PROBE_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: str  # 3.11.7

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])


def requested_minor(base: str) -> int | None:
    """The 11 of `python:3.11-slim`; None if the base image requests no version."""
    found = _PYTHON_IMAGE.fullmatch(base)
    return int(found[1]) if found else None


async def find_interpreter(minor: int | None) -> Interpreter:
    """The first installed interpreter of this minor version that runs, else the one that runs this program."""
    own = Interpreter(Path(sys.executable), ".".join(map(str, sys.version_info[:3])))
    if minor in (None, own.minor):
        return own
    for path in (*_on_path(f"python3.{minor}"), *_from_version_managers(minor)):
        found = await asyncio.to_thread(probe_interpreter, path)
        if found and found.minor == minor:
            return found
    return own


def probe_interpreter(path: Path) -> Interpreter | None:
    """Ask an interpreter for its version; None if it does not run, as a version manager's shim without a version."""
    try:
        result = subprocess.run(  # noqa: S603 -- a Python that the user has installed or named
            [path, "-I", "-c", _PRINT_VERSION],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    executable, version = result.stdout.splitlines()[-2:]
    return Interpreter(Path(executable), version)


def _on_path(name: str) -> list[Path]:
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [Path(found) for directory in directories if (found := shutil.which(name, path=directory))]


def _from_version_managers(minor: int) -> list[Path]:
    """Interpreters that pyenv and uv have installed; their shims run the selected version, which may be another."""
    home = Path.home()
    patterns = ((home / ".pyenv/versions", f"3.{minor}.*"), (home / ".local/share/uv/python", f"cpython-3.{minor}.*"))
    return [
        path
        for directory, name in patterns
        for path in sorted(directory.glob(f"{name}/bin/python3.{minor}"), reverse=True)
    ]
