"""Where does a container's Python come from? A virtual environment in the cache, made once for each set of pip lines.

A virtual environment knows its own path, so it is not made elsewhere and moved: it is made in its place under a lock
that dies with its holder, and a mark is written when it is whole.
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
from paddle_operator.local.images.image_config import CannotObey
from paddle_operator.local.images.interpreters import Interpreter
from paddle_operator.local.images.run_instructions import PipCommand
from paddle_operator.local.sandbox.sandbox import start_plain_process

_MARK = ".whole"
_LOOK_AGAIN_SECONDS = 0.1
_STILL_SECONDS = 5.0
_REQUIREMENTS = ("-r", "--requirement", "-c", "--constraint")
_LINKS = ("-f", "--find-links")
_ARCHIVES = (".whl", ".tar.gz", ".zip")
_NAMED = re.compile(r"^\s*(?:-r|--requirement|-c|--constraint|-f|--find-links)?[\s=]*(\S*[./]\S*)", re.MULTILINE)
_SAYING = re.compile(r"^(Collecting|Downloading|Building wheel for|Using cached) (\S+)(?: \(([\d.]+ [kMG]?B)\))?")


# Run by the environment's Python to be. pip and setuptools are unpacked from the wheels that come with every Python, as
# python:3.11 has both: 0.3 s, where ensurepip installs the same in 5 s.
_MAKE = """
import pathlib, sys, sysconfig, venv, zipfile
folder = pathlib.Path(sys.argv[1])
venv.EnvBuilder(symlinks=True).create(folder)
try:
    import ensurepip
    places = [pathlib.Path(ensurepip.__file__).parent / "_bundled", sysconfig.get_config_var("WHEEL_PKG_DIR")]
    wheels = [wheel for place in places if place for wheel in pathlib.Path(place).glob("*.whl")]
    bundled = [wheel for wheel in wheels if wheel.name.startswith(("pip-", "setuptools-"))]
except ImportError:
    bundled = []
if not any(wheel.name.startswith("pip-") for wheel in bundled):
    sys.exit(f"ERROR: {sys.executable} comes without pip: install python3-venv, or use another Python")
for wheel in bundled:
    zipfile.ZipFile(wheel).extractall(next(folder.glob("lib/python3*/site-packages")))
for name in ("pip", "pip3"):
    script = folder / "bin" / name
    script.write_text('#!/bin/sh\\nexec "$(dirname "$0")/python" -m pip "$@"\\n')
    script.chmod(0o755)
"""


class BuildFailed(Exception):
    """str() is what pip said last."""


class Environments:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def find(self, python: Interpreter, commands: Sequence[PipCommand], layer: Path, progress: Progress) -> Path:
        """An environment's folder, made first where it is not there. Raises BuildFailed and OSError."""
        key = await asyncio.to_thread(_key, python, commands, layer)
        environment = self._folder / key
        if _is_whole(environment):
            return environment
        async with self._alone(key, progress):
            if not _is_whole(environment):
                await asyncio.to_thread(shutil.rmtree, environment, ignore_errors=True)
                began = time.monotonic()
                await _Build(environment, python, layer, progress).carry_out(commands)
                (environment / _MARK).write_text(json.dumps([command.arguments for command in commands]))
                progress(f"environment ready after {time.monotonic() - began:.0f} s")
        return environment

    @asynccontextmanager
    async def _alone(self, key: str, progress: Progress) -> AsyncIterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f".{key}.lock").open("w") as lock:
            told = False
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not told:
                        progress("waiting for the environment, which is being made already")
                    told = True
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            yield


def _is_whole(environment: Path) -> bool:
    """Also whether the Python that it was made of is still there."""
    return (environment / _MARK).exists() and (environment / "bin" / "python").exists()


class _Build:
    def __init__(self, environment: Path, python: Interpreter, layer: Path, progress: Progress) -> None:
        self._environment, self._python, self._layer, self._progress = environment, python, layer, progress
        self._files = environment / ".files"  # a copy: pip writes into the folders that it builds from

    async def carry_out(self, commands: Sequence[PipCommand]) -> None:
        self._progress(f"making a Python {self._python.version} environment")
        await self._run([str(self._python.path), "-I", "-c", _MAKE, str(self._environment)], os.environ)
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
        """Raises BuildFailed. Ends with the supervisor, as containers do."""
        inherited = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
        command = Command(tuple(arguments), inherited, str(self._environment.parent))
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as heard, os.fdopen(writing, "wb") as said:
            process = await start_plain_process(command, said.fileno())
            said.close()
            telling = _Telling(self._progress)
            try:
                await telling.listen(heard)
                if await process.wait():
                    raise BuildFailed(telling.last_words())
            finally:
                process.kill()
                await asyncio.shield(process.wait())


class _Telling:
    """What pip says, in fewer words and with what can be heard of it in time."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._lines = progress, list[str]()
        self._doing, self._since = "", time.monotonic()

    async def listen(self, pipe: IO[bytes]) -> None:
        reader = asyncio.StreamReader(limit=1 << 20)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        try:
            while True:
                try:
                    line = await asyncio.wait_for(reader.readline(), _STILL_SECONDS)
                except TimeoutError:
                    self.still()
                    continue
                if not line:
                    return
                self.hear(line.decode(errors="replace"))
        finally:
            transport.close()

    def hear(self, line: str) -> None:
        self._lines = [*self._lines[-40:], line]
        text = line.strip()
        if said := _SAYING.match(text):
            what = {"Collecting": "looking for", "Building wheel for": "building", "Downloading": "downloading"}
            name = said[2].rpartition("/")[2]
            self._do(f"{what.get(said[1], 'using cached')} {name}{f' ({said[3]})' if said[3] else ''}")
        elif text.startswith("Installing collected packages: "):
            *others, last = text.partition(": ")[2].split(", ")  # what was asked for comes after what it needs
            self._do(f"installing {last}{f' and {len(others)} more' if others else ''}")

    def still(self) -> None:
        if self._doing:
            self._progress(f"{self._doing}, for {time.monotonic() - self._since:.0f} s")

    def _do(self, what: str) -> None:
        self._doing, self._since = what, time.monotonic()
        self._progress(what)

    def last_words(self) -> str:
        lines = [line.strip() for line in self._lines if line.strip() and not line.startswith("[notice]")]
        errors = [line for line in lines if re.match(r"(?i)(error|fatal)\b.*", line)]
        return "; ".join(line.removeprefix("ERROR: ") for line in (errors[-3:] or lines[-3:])) or "it said nothing"


def _key(python: Interpreter, commands: Sequence[PipCommand], layer: Path) -> str:
    """What the environment is made of, as a name. Raises CannotObey for a requirements file that is not there."""
    made_of = [
        (command.arguments, sorted(command.run.variables.items()), [_content(layer / path) for path in paths.values()])
        for command in commands
        for paths in [_paths(command, layer)]
    ]
    python_and_machine = (python.version, str(python.path.resolve()), platform.machine())
    return hashlib.sha256(repr((python_and_machine, made_of)).encode()).hexdigest()[:24]


def _paths(command: PipCommand, layer: Path) -> dict[str, str]:
    """Those arguments that are files or folders of the image, and where they are in its layer."""
    found: dict[str, str] = {}
    before = ""
    for argument in command.arguments:
        named = before in (*_REQUIREMENTS, *_LINKS)
        looks_like_one = "/" in argument or argument.startswith(".") or argument.endswith(_ARCHIVES)
        path = posixpath.normpath(posixpath.join(command.run.directory, argument)).lstrip("/")
        if (named or looks_like_one) and "://" not in argument:
            if (layer / path).exists():
                found[argument] = path
            elif before in _REQUIREMENTS:
                raise CannotObey(
                    command.run.origin, f"cannot be obeyed: {argument} is not among what was copied before"
                )
        before = argument
    return found


def _content(path: Path, seen: tuple[Path, ...] = ()) -> list[str]:
    """A digest of each file that counts: one, those below a folder, those that a requirements file names."""
    if path in seen:
        return []
    seen = (*seen, path)
    if path.is_dir():
        files = [below for below in sorted(path.rglob("*")) if below.is_file() and below not in seen]
        return [text for file in files for text in (str(file.relative_to(path)), _digest(file))]
    digests = [_digest(path)]
    if path.suffix == ".txt":
        for name in _NAMED.findall(path.read_text(errors="replace")):
            if (named := path.parent / name).exists():
                digests += _content(named, seen)
    return digests


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
