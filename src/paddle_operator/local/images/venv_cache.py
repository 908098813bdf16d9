"""Caches one virtual environment per set of pip commands; containers get their Python from it.

A virtual environment contains its own path, so it cannot be built elsewhere and moved: it is built in place under a
lock that ends with its holder, and a marker is written when it is complete.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import platform
import posixpath
import re
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from paddle_operator.local.cri import Command, Progress
from paddle_operator.local.images.image_config import UnsupportedInstruction
from paddle_operator.local.images.interpreters import Interpreter
from paddle_operator.local.images.run_instructions import PipCommand
from paddle_operator.local.sandbox.sandbox import start_plain_process

_COMPLETE_MARKER = ".complete"
_LOCK_POLL_SECONDS = 0.1
_STALL_REPORT_SECONDS = 5.0
_REQUIREMENT_OPTIONS = ("-r", "--requirement", "-c", "--constraint")
_FIND_LINKS_OPTIONS = ("-f", "--find-links")
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_FILE_REFERENCE = re.compile(
    r"^\s*(?:-r|--requirement|-c|--constraint|-f|--find-links)?[\s=]*(\S*[./]\S*)", re.MULTILINE
)
_PIP_STEP = re.compile(r"^(Collecting|Downloading|Building wheel for|Using cached) (\S+)(?: \(([\d.]+ [kMG]?B)\))?")


# Run by the base interpreter. pip and setuptools, which python:3.11 images have, are unpacked from the wheels that come
# with Python: 0.3 s, where ensurepip installs the same in 5 s.
_CREATE_VENV = """
import pathlib, sys, sysconfig, venv, zipfile
directory = pathlib.Path(sys.argv[1])
venv.EnvBuilder(symlinks=True).create(directory)
try:
    import ensurepip
    bundles = [pathlib.Path(ensurepip.__file__).parent / "_bundled", sysconfig.get_config_var("WHEEL_PKG_DIR")]
    wheels = [wheel for path in bundles if path for wheel in pathlib.Path(path).glob("*.whl")]
    bundled = [wheel for wheel in wheels if wheel.name.startswith(("pip-", "setuptools-"))]
except ImportError:
    bundled = []
if not any(wheel.name.startswith("pip-") for wheel in bundled):
    sys.exit(f"ERROR: {sys.executable} comes without pip: install python3-venv, or use another Python")
for wheel in bundled:
    zipfile.ZipFile(wheel).extractall(next(directory.glob("lib/python3*/site-packages")))
for name in ("pip", "pip3"):
    script = directory / "bin" / name
    script.write_text('#!/bin/sh\\nexec "$(dirname "$0")/python" -m pip "$@"\\n')
    script.chmod(0o755)
"""


class VenvBuildError(Exception):
    """pip failed; str() is the end of its output."""


class VenvCache:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def find(self, python: Interpreter, commands: Sequence[PipCommand], layer: Path, progress: Progress) -> Path:
        """Return the environment's directory; build it first if it is not cached. Raises VenvBuildError and OSError."""
        key = await asyncio.to_thread(_key, python, commands, layer)
        environment = self._directory / key
        if _is_complete(environment):
            return environment
        async with self._lock(key, progress):
            if not _is_complete(environment):
                await asyncio.to_thread(shutil.rmtree, environment, ignore_errors=True)
                started_at = time.monotonic()
                await _Build(environment, python, layer, progress).run(commands)
                (environment / _COMPLETE_MARKER).write_text(json.dumps([command.arguments for command in commands]))
                progress(f"environment ready after {time.monotonic() - started_at:.0f} s")
        return environment

    @asynccontextmanager
    async def _lock(self, key: str, progress: Progress) -> AsyncIterator[None]:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / f".{key}.lock").open("w") as lock:
            reported = False
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not reported:
                        progress("waiting for another build of the same environment")
                    reported = True
                    await asyncio.sleep(_LOCK_POLL_SECONDS)
            yield


def _is_complete(environment: Path) -> bool:
    """Whether the environment was built to the end and its base interpreter still exists."""
    return (environment / _COMPLETE_MARKER).exists() and (environment / "bin" / "python").exists()


class _Build:
    def __init__(self, environment: Path, python: Interpreter, layer: Path, progress: Progress) -> None:
        self._environment, self._python, self._layer, self._progress = environment, python, layer, progress
        self._files = environment / ".files"  # a copy: pip writes to the directories that it builds from

    async def run(self, commands: Sequence[PipCommand]) -> None:
        self._progress(f"creating a Python {self._python.version} environment")
        await self._run([str(self._python.path), "-I", "-c", _CREATE_VENV, str(self._environment)], os.environ)
        if any(_paths(command, self._layer) for command in commands):
            await asyncio.to_thread(shutil.copytree, self._layer, self._files, symlinks=True)
        for command in commands:
            await self._pip(command)
        await asyncio.to_thread(shutil.rmtree, self._files, ignore_errors=True)

    async def _pip(self, command: PipCommand) -> None:
        paths = _paths(command, self._layer)
        arguments = [
            str(self._files / paths[argument]) if argument in paths else argument for argument in command.arguments
        ]
        variables = {name: value for name, value in command.run.variables.items() if name not in ("PATH", "HOME")}
        settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_PROGRESS_BAR": "off"}
        python = str(self._environment / "bin" / "python")
        await self._run([python, "-m", "pip", *arguments], {**os.environ, **variables, **settings})

    async def _run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a command that ends with the supervisor, as containers do. Raises VenvBuildError."""
        inherited = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
        command = Command(tuple(arguments), inherited, str(self._environment.parent))
        read_end, write_end = os.pipe()
        with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb") as writer:
            process = await start_plain_process(command, writer.fileno())
            writer.close()
            pip_progress = _PipProgress(self._progress)
            try:
                await pip_progress.read(reader)
                if await process.wait():
                    raise VenvBuildError(pip_progress.error_summary())
            finally:
                process.kill()
                await asyncio.shield(process.wait())


class _PipProgress:
    """Condenses pip's output into short progress lines, and reports a step that takes long."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lines = progress, list[str]()
        self._step, self._step_started_at = "", time.monotonic()

    async def read(self, pipe: IO[bytes]) -> None:
        reader = asyncio.StreamReader(limit=1 << 20)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        try:
            while True:
                try:
                    line = await asyncio.wait_for(reader.readline(), _STALL_REPORT_SECONDS)
                except TimeoutError:
                    self._report_stall()
                    continue
                if not line:
                    return
                self._handle_line(line.decode(errors="replace"))
        finally:
            transport.close()

    def _handle_line(self, line: str) -> None:
        self._lines = [*self._lines[-40:], line]
        text = line.strip()
        if step := _PIP_STEP.match(text):
            verbs = {"Collecting": "looking for", "Building wheel for": "building", "Downloading": "downloading"}
            name = step[2].rpartition("/")[2]
            self._start_step(f"{verbs.get(step[1], 'using cached')} {name}{f' ({step[3]})' if step[3] else ''}")
        elif text.startswith("Installing collected packages: "):
            *others, last = text.partition(": ")[2].split(", ")  # a package is listed after its dependencies
            self._start_step(f"installing {last}{f' and {len(others)} more' if others else ''}")

    def _report_stall(self) -> None:
        if self._step:
            self._progress(f"{self._step}, for {time.monotonic() - self._step_started_at:.0f} s")

    def _start_step(self, step: str) -> None:
        self._step, self._step_started_at = step, time.monotonic()
        self._progress(step)

    def error_summary(self) -> str:
        lines = [line.strip() for line in self._lines if line.strip() and not line.startswith("[notice]")]
        errors = [line for line in lines if re.match(r"(?i)(error|fatal)\b.*", line)]
        return "; ".join(line.removeprefix("ERROR: ") for line in (errors[-3:] or lines[-3:])) or "pip printed nothing"


def _key(python: Interpreter, commands: Sequence[PipCommand], layer: Path) -> str:
    """A digest of the environment's inputs. Raises UnsupportedInstruction for a missing requirements file."""
    inputs = [
        (
            command.arguments,
            sorted(command.run.variables.items()),
            [_content_digests(layer / path) for path in paths.values()],
        )
        for command in commands
        for paths in [_paths(command, layer)]
    ]
    platform_key = (python.version, str(python.path.resolve()), platform.machine())
    return hashlib.sha256(repr((platform_key, inputs)).encode()).hexdigest()[:24]


def _paths(command: PipCommand, layer: Path) -> dict[str, str]:
    """The arguments that are paths of the image, mapped to their paths in its layer."""
    found: dict[str, str] = {}
    before = ""
    for argument in command.arguments:
        is_file_option = before in (*_REQUIREMENT_OPTIONS, *_FIND_LINKS_OPTIONS)
        looks_like_path = "/" in argument or argument.startswith(".") or argument.endswith(_ARCHIVES)
        path = posixpath.normpath(posixpath.join(command.run.directory, argument)).lstrip("/")
        if (is_file_option or looks_like_path) and "://" not in argument:
            if (layer / path).exists():
                found[argument] = path
            elif before in _REQUIREMENT_OPTIONS:
                raise UnsupportedInstruction(
                    command.run.origin, f"is not possible: no earlier COPY or ADD brings {argument}"
                )
        before = argument
    return found


def _content_digests(path: Path, seen: tuple[Path, ...] = ()) -> list[str]:
    """Digests of a file, of the files below a directory, and of the files that a requirements file names."""
    if path in seen:
        return []
    seen = (*seen, path)
    if path.is_dir():
        files = [below for below in sorted(path.rglob("*")) if below.is_file() and below not in seen]
        return [text for file in files for text in (str(file.relative_to(path)), _digest(file))]
    digests = [_digest(path)]
    if path.suffix == ".txt":
        for name in _FILE_REFERENCE.findall(path.read_text(errors="replace")):
            if (named := path.parent / name).exists():
                digests += _content_digests(named, seen)
    return digests


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
