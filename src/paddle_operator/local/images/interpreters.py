"""Which Python does a base image mean? `python:3.11…` that minor version, if this machine has it; all others ours."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_OF_PYTHON = re.compile(r"(?:.*/)?python:3\.(\d+)(?:\D.*)?")
_TELL = "import sys; print(sys.executable); print('%d.%d.%d' % sys.version_info[:3])"
_WITHIN_SECONDS = 20


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: str  # 3.11.7

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])


def wanted_minor(base: str) -> int | None:
    """The 11 of `python:3.11-slim`; None where a base image asks for no version."""
    found = _OF_PYTHON.fullmatch(base)
    return int(found[1]) if found else None


async def interpreter(minor: int | None) -> Interpreter:
    """The first that fits and runs, and this one where none does."""
    own = Interpreter(Path(sys.executable), ".".join(map(str, sys.version_info[:3])))
    if minor in (None, own.minor):
        return own
    for path in (*_on_path(f"python3.{minor}"), *_of_version_managers(minor)):
        found = await asyncio.to_thread(asked, path)
        if found and found.minor == minor:
            return found
    return own


def asked(path: Path) -> Interpreter | None:
    """What a Python says of itself; None where it does not run, as a version manager's shim without a version."""
    try:
        told = subprocess.run(  # noqa: S603 -- a Python that the user has or names
            [path, "-I", "-c", _TELL], capture_output=True, text=True, timeout=_WITHIN_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    executable, version = told.stdout.splitlines()[-2:]
    return Interpreter(Path(executable), version)


def _on_path(name: str) -> list[Path]:
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [Path(found) for folder in folders if (found := shutil.which(name, path=folder))]


def _of_version_managers(minor: int) -> list[Path]:
    """What pyenv and uv have installed: their shims stand for what is chosen at the moment, which may be another."""
    home = Path.home()
    kept = ((home / ".pyenv/versions", f"3.{minor}.*"), (home / ".local/share/uv/python", f"cpython-3.{minor}.*"))
    return [path for folder, name in kept for path in sorted(folder.glob(f"{name}/bin/python3.{minor}"), reverse=True)]
