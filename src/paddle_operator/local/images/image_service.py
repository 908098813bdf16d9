"""What does an image's name mean where no container engine is? A folder with a Dockerfile, read anew for each pod.

The last part of the name, without tag and digest, names a folder below one of `folders`; images.json may say otherwise
by the full name or by its last part: {"demo": {"folder": "/home/me/demo", "build_arguments": {"PADDLE": "3.0.0"},
"python": "/usr/bin/python3"}}, of which each may be missing.

What comes out: `programs` is the bin folder of a cached environment, to be first in PATH, which no container may change
(give the cache to the sandbox as `shown`). `mounts` are entries of a cached layer that is never changed either: each is
to be copied for a container, since what it writes there is its own. A working directory that the Dockerfile names is
among them, or lies in one that is, unless the machine shares it (/root).
"""

import asyncio
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paddle_operator.local.atomic_file import write_atomic
from paddle_operator.local.cri import Image, ImageError, Progress, StartError
from paddle_operator.local.images import layers
from paddle_operator.local.images.dockerfile import DockerfileError
from paddle_operator.local.images.image_config import CannotObey, Recipe, recipe
from paddle_operator.local.images.interpreters import Interpreter, interpreter, wanted_minor
from paddle_operator.local.images.run_instructions import pip_commands
from paddle_operator.local.images.venv_cache import BuildFailed, Environments

_REFERENCE = re.compile(
    r"(?:[\w.-]+(?::\d+)?/)?(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::[\w][\w.-]{0,127})?(?:@[a-z0-9+.-]+:[0-9a-f]{32,})?"
)


@dataclass(frozen=True)
class Source:
    """What an image is made of."""

    folder: Path | None = None
    build_arguments: Mapping[str, str] = field(default_factory=dict)
    python: Path | None = None  # the machine's, to be used as it is

    @property
    def dockerfile(self) -> Path:
        return (self.folder or Path()) / "Dockerfile"


class LocalImages:
    def __init__(
        self,
        folders: Sequence[Path],
        registered: Path,
        cache: Path,
        build_arguments: Mapping[str, str] | None = None,
        host_python: Path | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        """`hints` has a sentence to be added when pip fails on a package of that name, such as who has wheels of it."""
        self._folders, self._registered = folders, registered
        self._build_arguments, self._host_python = build_arguments or {}, host_python
        self._hints = hints or {}
        self._pythons: dict[int | None, Interpreter] = {}
        self._layers, self._environments = cache / "layers", Environments(cache / "environments")
        self._called = cache / "pythons"

    async def find(self, name: str, progress: Progress) -> Image:
        source = await asyncio.to_thread(self._known_source, name)
        with self._in_words(name, source):
            if source.folder is None:
                assert source.python
                return Image(name, programs=await asyncio.to_thread(self._by_both_names, source.python))
            return await self._made(name, source, progress)

    def check(self, name: str) -> None:
        """Whether it could be made: it is known, and its Dockerfile can be obeyed. Raises ImageError."""
        source = self._known_source(name)
        if source.folder is not None:
            with self._in_words(name, source):
                for run in self._recipe(source, ()).runs:
                    list(pip_commands(run))

    def _known_source(self, name: str) -> Source:
        source = self._source(name)
        if source.folder is None and source.python is None:
            raise ImageError("ErrImagePull", self._unknown(name, last_part(name)))
        return source

    @contextmanager
    def _in_words(self, name: str, source: Source) -> Iterator[None]:
        """What goes wrong with an image is told as one kind of error."""
        last = last_part(name)
        try:
            yield
        except DockerfileError as error:
            raise ImageError("ErrImagePull", f"{source.dockerfile}:{error.line}: {error}") from None
        except CannotObey as error:
            raise ImageError("ErrImagePull", f"{error}; {ways_out(last)}") from None
        except BuildFailed as error:
            raise ImageError("ErrImagePull", self._failed(source, str(error), last)) from None
        except (OSError, UnicodeDecodeError, StartError) as error:
            raise ImageError(
                "ErrImagePull", f"image {name} cannot be made of {source.folder or source.python}: {error}"
            ) from None

    def known(self) -> list[str]:
        """Names of images that can be used, each once."""
        folders = [path.parent.name for folder in self._folders for path in folder.glob("*/Dockerfile")]
        return sorted({*folders, *self._registrations()})

    async def _made(self, name: str, source: Source, progress: Progress) -> Image:
        made_of = await asyncio.to_thread(self._recipe, source, ())
        for note in made_of.notes:
            progress(note)
        layer = await asyncio.to_thread(layers.layer, made_of.copies, made_of.folders, self._layers)
        return Image(
            name,
            made_of.entrypoint,
            made_of.command,
            made_of.environment,
            made_of.working_directory,
            programs=await asyncio.to_thread(self._by_both_names, source.python)
            if source.python
            else (await self._programs(made_of, layer, progress),),
            mounts=tuple(layers.mounts(layer)),
        )

    def _by_both_names(self, python: Path) -> tuple[Path, ...]:
        """Where the machine's own Python is found as `python` and as `python3`: Debian, for one, has only the latter.

        Scripts and no links: a Python that is called by a link outside its virtual environment does not find it.
        """
        script = f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n'
        folder = self._called / hashlib.sha256(script.encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("python", "python3"):
            if not (folder / name).exists():
                write_atomic(folder / name, script, mode=0o755)
        return folder, python.parent

    async def _programs(self, made_of: Recipe, layer: Path, progress: Progress) -> Path:
        commands = [command for run in made_of.runs for command in pip_commands(run)]
        python = await self._python(made_of.base, progress)
        return await self._environments.find(python, commands, layer, progress) / "bin"

    async def _python(self, base: str, progress: Progress) -> Interpreter:
        minor = wanted_minor(base)
        if minor not in self._pythons:
            self._pythons[minor] = await interpreter(minor)  # asking other Pythons for their version takes a while
        python = self._pythons[minor]
        if minor is not None and python.minor != minor:
            progress(f"{base} asks for Python 3.{minor}, which this machine lacks: Python {python.version} is used")
        return python

    def _recipe(self, source: Source, above: tuple[Path, ...]) -> Recipe:
        """Raises what recipe() raises, and DockerfileError for an image that is built on itself."""
        if source.dockerfile in above:
            raise DockerfileError(1, f"the image of {source.folder} is built on itself")

        def below(base: str) -> Recipe | None:
            found = self._source(base) if _REFERENCE.fullmatch(base) else Source()
            return self._recipe(found, (*above, source.dockerfile)) if found.folder else None

        return recipe(source.dockerfile, {**self._build_arguments, **source.build_arguments}, below)

    def _source(self, name: str) -> Source:
        registrations, last = self._registrations(), last_part(name)
        said = next((registrations[key] for key in (name, without_tag(name), last) if key in registrations), Source())
        folders = (folder / last for folder in self._folders if (folder / last / "Dockerfile").is_file())
        return replace(said, folder=said.folder or next(folders, None), python=said.python or self._host_python)

    def _registrations(self) -> dict[str, Source]:
        try:
            return registrations(self._registered)
        except (OSError, ValueError) as error:
            raise ImageError("ErrImagePull", f"{self._registered} cannot be read ({error}): remove it") from None

    def _unknown(self, name: str, last: str) -> str:
        known = ", ".join(self.known()) or "none"
        return (
            f'image "{name}" is not known here, where images are folders with a Dockerfile ({known}): {ways_out(last)}'
        )

    def _failed(self, source: Source, said: str, last: str) -> str:
        hint = "".join(f" ({hint})" for package, hint in self._hints.items() if package in said)
        return f"pip failed for {source.dockerfile}: {said}{hint}; correct its lines, or {ways_out(last)}"


def ways_out(last: str) -> str:
    return (
        f"use a folder of yours with a Dockerfile that local mode can obey (--image {last}=DIR), "
        "or this machine's own Python (--python)"
    )


def last_part(name: str) -> str:
    """`demo` of `registry.example/team/demo:v1`. Raises ImageError for what is no name of an image."""
    found = _REFERENCE.fullmatch(name)
    if not found:
        why = "repository name must be lowercase" if name.lower() != name else "invalid reference format"
        raise ImageError("InvalidImageName", f'couldn\'t parse image name "{name}": {why}')
    return found["path"].rpartition("/")[2]


def without_tag(name: str) -> str:
    path, slash, last = name.partition("@")[0].rpartition("/")
    return path + slash + last.partition(":")[0]


def register_image(
    registered: Path,
    name: str,
    folder: Path | None = None,
    build_arguments: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> None:
    """Write down what an image is made of from now on; what was said of it before is forgotten. Raises OSError."""
    last_part(name)
    try:
        said = registrations(registered)
    except ValueError:
        said = {}  # unreadable, so nothing that it says is lost
    said[name] = Source(folder, build_arguments or {}, python)
    text = json.dumps({key: _stored(source) for key, source in sorted(said.items())}, indent=2)
    write_atomic(registered, text + "\n", mode=0o644)


def registrations(registered: Path) -> dict[str, Source]:
    """By name. Raises ValueError for a file that is not of our making."""
    try:
        stored = json.loads(registered.read_text())
    except FileNotFoundError:
        return {}
    try:
        return {name: _source_of(entry) for name, entry in stored.items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a map of images: {error}") from None


def _source_of(entry: Mapping[str, Any]) -> Source:
    folder, python = entry.get("folder"), entry.get("python")
    arguments = {str(name): str(value) for name, value in entry.get("build_arguments", {}).items()}
    return Source(Path(folder) if folder else None, arguments, Path(python) if python else None)


def _stored(source: Source) -> dict[str, object]:
    paths = {"folder": source.folder, "python": source.python}
    return {key: str(path) for key, path in paths.items() if path} | {"build_arguments": dict(source.build_arguments)}
