"""What is an image without a container engine? A directory with a Dockerfile, read again for each pod.

The short name, without registry, tag and digest, names a directory below one of `directories`. images.json overrides
that by full or short name: {"demo": {"folder": "/home/me/demo", "build_arguments": {"PADDLE": "3.0.0"},
"python": "/usr/bin/python3"}}; each field is optional.

In the resulting Image, `programs` is the bin directory of a cached virtual environment, first in PATH; no container may
change it (pass the cache to the sandbox as read-only path). `mounts` are entries of a cached layer; each is copied per
container, since a container's writes are its own. The working directory is among them, unless the host has it (/root).
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
from paddle_operator.local.images.image_config import ImageConfig, UnsupportedInstruction, read_image_config
from paddle_operator.local.images.interpreters import Interpreter, find_interpreter, requested_minor
from paddle_operator.local.images.run_instructions import pip_commands
from paddle_operator.local.images.venv_cache import VenvBuildError, VenvCache

_REFERENCE = re.compile(
    r"(?:[\w.-]+(?::\d+)?/)?(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)(?::[\w][\w.-]{0,127})?(?:@[a-z0-9+.-]+:[0-9a-f]{32,})?"
)


@dataclass(frozen=True)
class BuildSource:
    """What an image is built from."""

    folder: Path | None = None
    build_arguments: Mapping[str, str] = field(default_factory=dict)
    python: Path | None = None  # an interpreter of the host, used as it is

    @property
    def dockerfile(self) -> Path:
        return (self.folder or Path()) / "Dockerfile"


class ImageService:
    def __init__(
        self,
        directories: Sequence[Path],
        registered: Path,
        cache: Path,
        build_arguments: Mapping[str, str] | None = None,
        host_python: Path | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        """`hints` maps a package to a message that is added when pip fails on it, such as where it has wheels."""
        self._directories, self._registered = directories, registered
        self._build_arguments, self._host_python = build_arguments or {}, host_python
        self._hints = hints or {}
        self._pythons: dict[int | None, Interpreter] = {}
        self._layers, self._venvs = cache / "layers", VenvCache(cache / "environments")
        self._python_wrappers = cache / "pythons"

    async def find(self, name: str, progress: Progress) -> Image:
        source = await asyncio.to_thread(self._require_source, name)
        with self._as_image_error(name, source):
            if source.folder is None:
                assert source.python
                return Image(name, programs=await asyncio.to_thread(self._wrap_python, source.python))
            return await self._build(name, source, progress)

    def check(self, name: str) -> None:
        """Check that the image is known and its Dockerfile is supported. Raises ImageError."""
        source = self._require_source(name)
        if source.folder is not None:
            with self._as_image_error(name, source):
                for run in self._config(source, ()).runs:
                    list(pip_commands(run))

    def _require_source(self, name: str) -> BuildSource:
        source = self._source(name)
        if source.folder is None and source.python is None:
            raise ImageError("ErrImagePull", self._describe_unknown(name, short_name(name)))
        return source

    @contextmanager
    def _as_image_error(self, name: str, source: BuildSource) -> Iterator[None]:
        """Raise every failure as an ImageError."""
        short = short_name(name)
        try:
            yield
        except DockerfileError as error:
            raise ImageError("ErrImagePull", f"{source.dockerfile}:{error.line}: {error}") from None
        except UnsupportedInstruction as error:
            raise ImageError("ErrImagePull", f"{error}; {fixes(short)}") from None
        except VenvBuildError as error:
            raise ImageError("ErrImagePull", self._describe_pip_failure(source, str(error), short)) from None
        except (OSError, UnicodeDecodeError, StartError) as error:
            raise ImageError(
                "ErrImagePull", f"cannot build image {name} from {source.folder or source.python}: {error}"
            ) from None

    def image_names(self) -> list[str]:
        """Names of the images that can be used, each once."""
        names = [path.parent.name for directory in self._directories for path in directory.glob("*/Dockerfile")]
        return sorted({*names, *self._registrations()})

    async def _build(self, name: str, source: BuildSource, progress: Progress) -> Image:
        config = await asyncio.to_thread(self._config, source, ())
        for warning in config.warnings:
            progress(warning)
        layer = await asyncio.to_thread(layers.build_layer, config.copies, config.directories, self._layers)
        return Image(
            name,
            config.entrypoint,
            config.command,
            config.environment,
            config.working_directory,
            programs=await asyncio.to_thread(self._wrap_python, source.python)
            if source.python
            else (await self._programs(config, layer, progress),),
            mounts=tuple(layers.layer_mounts(layer)),
        )

    def _wrap_python(self, python: Path) -> tuple[Path, ...]:
        """Directories in which the host's Python is both `python` and `python3`: Debian, for one, has only the latter.

        Scripts and not links: a Python that is called by a link outside its virtual environment does not find it.
        """
        script = f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n'
        directory = self._python_wrappers / hashlib.sha256(script.encode()).hexdigest()[:16]
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("python", "python3"):
            if not (directory / name).exists():
                write_atomic(directory / name, script, mode=0o755)
        return directory, python.parent

    async def _programs(self, config: ImageConfig, layer: Path, progress: Progress) -> Path:
        commands = [command for run in config.runs for command in pip_commands(run)]
        python = await self._python(config.base, progress)
        return await self._venvs.find(python, commands, layer, progress) / "bin"

    async def _python(self, base: str, progress: Progress) -> Interpreter:
        minor = requested_minor(base)
        if minor not in self._pythons:
            self._pythons[minor] = await find_interpreter(minor)  # cached: an interpreter takes long to start
        python = self._pythons[minor]
        if minor is not None and python.minor != minor:
            progress(f"{base} asks for Python 3.{minor}, which is not installed here: using Python {python.version}")
        return python

    def _config(self, source: BuildSource, derived: tuple[Path, ...]) -> ImageConfig:
        """Raises what read_image_config() raises, and DockerfileError for an image that is built on itself."""
        if source.dockerfile in derived:
            raise DockerfileError(1, f"the image of {source.folder} is built on itself")

        def resolve_base(base: str) -> ImageConfig | None:
            found = self._source(base) if _REFERENCE.fullmatch(base) else BuildSource()
            return self._config(found, (*derived, source.dockerfile)) if found.folder else None

        return read_image_config(source.dockerfile, {**self._build_arguments, **source.build_arguments}, resolve_base)

    def _source(self, name: str) -> BuildSource:
        registrations, short = self._registrations(), short_name(name)
        keys = (name, strip_tag(name), short)
        registered = next((registrations[key] for key in keys if key in registrations), BuildSource())
        directories = (path / short for path in self._directories if (path / short / "Dockerfile").is_file())
        return replace(
            registered,
            folder=registered.folder or next(directories, None),
            python=registered.python or self._host_python,
        )

    def _registrations(self) -> dict[str, BuildSource]:
        try:
            return read_registrations(self._registered)
        except (OSError, ValueError) as error:
            raise ImageError("ErrImagePull", f"{self._registered} cannot be read ({error}): remove it") from None

    def _describe_unknown(self, name: str, short: str) -> str:
        names = ", ".join(self.image_names()) or "none"
        return f'image "{name}" is unknown: local images are directories with a Dockerfile ({names}); {fixes(short)}'

    def _describe_pip_failure(self, source: BuildSource, output: str, short: str) -> str:
        hint = "".join(f" ({hint})" for package, hint in self._hints.items() if package in output)
        return f"pip failed for {source.dockerfile}: {output}{hint}; correct its lines, or {fixes(short)}"


def fixes(short: str) -> str:
    return (
        f"use a directory with a Dockerfile that local mode supports (--image {short}=DIR), "
        "or this machine's own Python (--python)"
    )


def short_name(name: str) -> str:
    """`demo` of `registry.example/team/demo:v1`. Raises ImageError for an invalid name."""
    match = _REFERENCE.fullmatch(name)
    if not match:
        why = "repository name must be lowercase" if name.lower() != name else "invalid reference format"
        raise ImageError("InvalidImageName", f'couldn\'t parse image name "{name}": {why}')
    return match["path"].rpartition("/")[2]


def strip_tag(name: str) -> str:
    path, slash, short = name.partition("@")[0].rpartition("/")
    return path + slash + short.partition(":")[0]


def register_image(
    registered: Path,
    name: str,
    folder: Path | None = None,
    build_arguments: Mapping[str, str] | None = None,
    python: Path | None = None,
) -> None:
    """Store what an image is built from, in place of an earlier registration. Raises OSError."""
    short_name(name)
    try:
        sources = read_registrations(registered)
    except ValueError:
        sources = {}  # an unreadable file is replaced
    sources[name] = BuildSource(folder, build_arguments or {}, python)
    text = json.dumps({key: _encode(source) for key, source in sorted(sources.items())}, indent=2)
    write_atomic(registered, text + "\n", mode=0o644)


def read_registrations(registered: Path) -> dict[str, BuildSource]:
    """Image sources by name. Raises ValueError for an invalid file."""
    try:
        stored = json.loads(registered.read_text())
    except FileNotFoundError:
        return {}
    try:
        return {name: _decode(entry) for name, entry in stored.items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a map of images: {error}") from None


def _decode(entry: Mapping[str, Any]) -> BuildSource:
    folder, python = entry.get("folder"), entry.get("python")
    arguments = {str(name): str(value) for name, value in entry.get("build_arguments", {}).items()}
    return BuildSource(Path(folder) if folder else None, arguments, Path(python) if python else None)


def _encode(source: BuildSource) -> dict[str, object]:
    paths = {"folder": source.folder, "python": source.python}
    return {key: str(path) for key, path in paths.items() if path} | {"build_arguments": dict(source.build_arguments)}
