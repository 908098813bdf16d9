"""What does an image's name mean where no container engine is? A folder with a Dockerfile, read anew for each pod.

The last part of the name, without tag and digest, names a folder below one of `folders`; images.json may say otherwise:
{"demo": {"folder": "/home/me/demo", "build_arguments": {"PADDLE": "3.0.0"}}}, by the full name or by its last part.

What comes out: `programs` is the bin folder of a cached environment, to be first in PATH, which no container may change
(give the cache to the sandbox as `shown`). `mounts` are entries of a cached layer that is never changed either: each is
to be copied for a container, since what it writes there is its own. A working directory that the Dockerfile names is
among them, or lies in one that is, unless the machine shares it (/root).
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paddle_operator.local import layers
from paddle_operator.local.container import Image, ImageError, Progress, StartError
from paddle_operator.local.dockerfile import DockerfileError
from paddle_operator.local.environments import BuildFailed, Environments
from paddle_operator.local.pythons import Interpreter, interpreter, wanted_minor
from paddle_operator.local.recipe import CannotObey, Recipe, recipe
from paddle_operator.local.run_lines import pip_commands

_REFERENCE = re.compile(
    r"(?:[\w.-]+(?::\d+)?/)?(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::[\w][\w.-]{0,127})?(?:@[a-z0-9+.-]+:[0-9a-f]{32,})?"
)


@dataclass(frozen=True)
class Source:
    """Where an image is made of."""

    folder: Path
    build_arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def dockerfile(self) -> Path:
        return self.folder / "Dockerfile"


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
        self._layers, self._environments = cache / "layers", Environments(cache / "images")

    async def find(self, name: str, progress: Progress) -> Image:
        last = last_part(name)
        source = self._source(name)
        if source is None:
            if self._host_python:
                return Image(name, programs=(self._host_python.parent,))
            raise ImageError("ErrImagePull", self._unknown(name, last))
        try:
            return await self._made(name, source, progress)
        except DockerfileError as error:
            raise ImageError("ErrImagePull", f"{source.dockerfile}:{error.line}: {error}") from None
        except CannotObey as error:
            raise ImageError("ErrImagePull", f"{error}; {ways_out(last)}") from None
        except BuildFailed as error:
            raise ImageError("ErrImagePull", self._failed(source, str(error), last)) from None
        except (OSError, UnicodeDecodeError, StartError) as error:
            raise ImageError("ErrImagePull", f"image {name} cannot be made of {source.folder}: {error}") from None

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
            programs=(await self._programs(made_of, layer, progress),),
            mounts=tuple(layers.mounts(layer)),
        )

    async def _programs(self, made_of: Recipe, layer: Path, progress: Progress) -> Path:
        if self._host_python:
            return self._host_python.parent
        commands = [command for run in made_of.runs for command in pip_commands(run)]
        python = await self._python(made_of.base, progress)
        return await self._environments.find(python, commands, layer, progress) / "bin"

    async def _python(self, base: str, progress: Progress) -> Interpreter:
        minor = wanted_minor(base)
        python = await interpreter(minor)
        if minor is not None and python.minor != minor:
            progress(f"{base} asks for Python 3.{minor}, which this machine lacks: Python {python.version} is used")
        return python

    def _recipe(self, source: Source, above: tuple[Path, ...]) -> Recipe:
        """Raises what recipe() raises, and DockerfileError for an image that is built on itself."""
        if source.folder in above:
            raise DockerfileError(1, f"{source.folder.name} is built on itself")

        def below(base: str) -> Recipe | None:
            found = self._source(base) if _REFERENCE.fullmatch(base) else None
            return self._recipe(found, (*above, source.folder)) if found else None

        return recipe(source.dockerfile, {**self._build_arguments, **source.build_arguments}, below)

    def _source(self, name: str) -> Source | None:
        registrations, last = self._registrations(), last_part(name)
        for candidate in (name, without_tag(name), last):
            if candidate in registrations:
                return registrations[candidate]
        found = (Source(folder / last) for folder in self._folders)
        return next((source for source in found if source.dockerfile.is_file()), None)

    def _registrations(self) -> dict[str, Source]:
        try:
            return dict(_registrations(json.loads(self._registered.read_text())))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
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


def _registrations(stored: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, Source]]:
    for name, entry in stored.items():
        arguments = entry.get("build_arguments", {})
        if not isinstance(arguments, dict):
            raise TypeError(f"build_arguments of {name} is no object")
        yield name, Source(Path(str(entry["folder"])), {str(key): str(value) for key, value in arguments.items()})
