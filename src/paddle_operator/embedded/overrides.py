"""What `paddlejob run` sets for local pods: directories behind images and volume claims, and a Python.

The node reads them from the state directory, where they outlast the command, as after `docker build -t`:
`images.json` (registered images) and `volumes/<namespace>/<claim>` (symbolic links).
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import paddle_operator
from paddle_operator.client.manifests import Document, UsageError, devices_of, images_of
from paddle_operator.embedded.state import State
from paddle_operator.local.cri import ImageError
from paddle_operator.local.images.image_service import (
    ImageService,
    read_registrations,
    register_image,
    short_name,
    strip_tag,
)
from paddle_operator.local.kubelet.machine import GPU, detect_machine

DOCKERFILE = "Dockerfile"
INSTALL_HINTS = {
    "paddlepaddle": "Paddle 2.6.2 has wheels for Python 3.11 and 3.12, 3.0.0 and later for 3.11 to 3.13, and none for "
    "3.14: install one of these Pythons beside yours"
}


@dataclass(frozen=True)
class LocalOverrides:
    images: dict[str, Path] = field(default_factory=dict)
    build_args: dict[str, str] = field(default_factory=dict)
    volumes: dict[str, Path] = field(default_factory=dict)
    python: Path | None = None

    @classmethod
    def parse(
        cls, images: list[str], build_args: list[str], volumes: list[str], python: Path | None
    ) -> "LocalOverrides":
        """From the options of the command line. Raises UsageError for a missing directory or a misspelt option."""
        image_directories, volume_directories = (
            _parse_directories("--image", images),
            _parse_directories("--volume", volumes),
        )
        for name, directory in image_directories.items():
            if not (directory / DOCKERFILE).is_file():
                raise UsageError(f"--image {name}={directory}: the directory has no {DOCKERFILE}: add one")
        if python and not (python.is_file() and os.access(python, os.X_OK)):
            raise UsageError(f"--python {python} is not a program: give the path of a Python interpreter")
        return cls(image_directories, dict(_parse_pairs("--build-arg", build_args)), volume_directories, python)


def _parse_pairs(flag: str, arguments: Iterable[str]) -> Iterable[tuple[str, str]]:
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise UsageError(f"{flag} {argument} is not of the form NAME=VALUE")
        yield name, value


def _parse_directories(flag: str, arguments: Iterable[str]) -> dict[str, Path]:
    directories = {name: Path(value).expanduser().absolute() for name, value in _parse_pairs(flag, arguments)}
    for name, directory in directories.items():
        if not directory.is_dir():
            raise UsageError(f"{flag} {name}={directory}: the directory does not exist")
    return directories


def demo_image_directories() -> list[Path]:
    """Where the demo images are: beside the sources in a checkout, inside the package where it is installed."""
    package = Path(paddle_operator.__file__).parent
    return [directory for directory in (package.parents[1] / "images", package / "images") if directory.is_dir()]


def store_overrides(state: State, overrides: LocalOverrides, namespace: str, job: Document) -> None:
    """Store the overrides for the node. Raises UsageError if this machine has no such device or image.

    Directories are stored for all later runs, Python and build arguments for the images of this job.
    """
    _check_devices(job)
    images = images_of(job)
    state.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, directory in overrides.images.items():
        register_image(state.images, name, directory)
    for name in images:
        _register_build(state, overrides, name)
    for claim, directory in overrides.volumes.items():
        _link_volume(state.volumes / namespace / claim, claim, directory)
    _check_images(state, images)


def _register_build(state: State, overrides: LocalOverrides, image: str) -> None:
    """Store how one image of the job is built in this run."""
    registered = read_registrations(state.images)
    names = (image, strip_tag(image), short_name(image))
    known = next((registered[name] for name in names if name in registered), None)
    if known or overrides.build_args or overrides.python:
        directory = known.folder if known else None
        register_image(state.images, image, directory, overrides.build_args, overrides.python)


def _link_volume(path: Path, claim: str, directory: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        raise UsageError(f"--volume {claim}={directory}: the claim has files of its own in {path}: move them away")
    path.symlink_to(directory)


def local_images(state: State) -> ImageService:
    """The images that pods of this cluster can use."""
    return ImageService(demo_image_directories(), state.images, state.cache / "images", hints=INSTALL_HINTS)


def _check_images(state: State, images: Iterable[str]) -> None:
    """An unknown image is refused now: its pods would wait for it forever."""
    for name in images:
        try:
            local_images(state).check(name)
        except ImageError as error:
            raise UsageError(str(error)) from None


def _check_devices(job: Document) -> None:
    """A missing device is refused now: the pods would be unschedulable forever."""
    available = {GPU: detect_machine().gpus}
    for name, number in devices_of(job).items():
        if number > available.get(name, 0):
            raise UsageError(
                f"the job requests {number} {name}, and this machine has {available.get(name, 0)}: "
                "run it with --cpu, or on a cluster that has them (--context)"
            )
