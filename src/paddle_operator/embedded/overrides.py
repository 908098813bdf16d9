"""What a user decides about this machine for a job: folders behind images and volume claims, and a Python.

It is written down in the state folder, as `docker build -t` would have it: the next run needs no flag.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import paddle_operator
from paddle_operator.client.manifests import CannotBeUsed, Document, devices_of
from paddle_operator.embedded.state import State
from paddle_operator.local.cri import ImageError
from paddle_operator.local.images.image_service import (
    ImageService,
    read_registrations,
    register_image,
    short_name,
    strip_tag,
)
from paddle_operator.local.kubelet.machine import detect_machine

GPU = "nvidia.com/gpu"
DOCKERFILE = "Dockerfile"
HINTS = {
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
    def of(cls, images: list[str], build_args: list[str], volumes: list[str], python: Path | None) -> "LocalOverrides":
        """From the command line. Raises CannotBeUsed where a folder is not there or a flag is misspelt."""
        wishes = cls(
            _folders("--image", images), dict(_pairs("--build-arg", build_args)), _folders("--volume", volumes), python
        )
        for name, folder in wishes.images.items():
            if not (folder / DOCKERFILE).is_file():
                raise CannotBeUsed(f"--image {name}={folder}: there is no {DOCKERFILE} in that folder: write one")
        if python and not (python.is_file() and os.access(python, os.X_OK)):
            raise CannotBeUsed(f"--python {python} is no program: give the path of a Python interpreter")
        return wishes


def _pairs(flag: str, given: Iterable[str]) -> Iterable[tuple[str, str]]:
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise CannotBeUsed(f"{flag} {each} is not of the form NAME=VALUE")
        yield name, value


def _folders(flag: str, given: Iterable[str]) -> dict[str, Path]:
    found = {name: Path(value).expanduser().absolute() for name, value in _pairs(flag, given)}
    for name, folder in found.items():
        if not folder.is_dir():
            raise CannotBeUsed(f"{flag} {name}={folder}: there is no such folder")
    return found


def image_folders() -> list[Path]:
    """Where the demo images are: beside the sources in a checkout, inside the package where it is installed."""
    package = Path(paddle_operator.__file__).parent
    return [folder for folder in (package.parents[1] / "images", package / "images") if folder.is_dir()]


def register(state: State, wishes: LocalOverrides, namespace: str, images: Iterable[str]) -> None:
    """Write the wishes down where the node looks: folders for good, Python and build arguments for this run."""
    state.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, folder in wishes.images.items():
        register_image(state.images, name, folder)
    for name in images:
        remember(state, wishes, name)
    for claim, folder in wishes.volumes.items():
        place = state.volumes / namespace / claim
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        elif place.exists():
            raise CannotBeUsed(f"--volume {claim}={folder}: the claim has files of its own in {place}: move them away")
        place.symlink_to(folder)


def remember(state: State, wishes: LocalOverrides, name: str) -> None:
    """What one image of the job is made of in this run."""
    every = read_registrations(state.images)
    known = next((every[each] for each in (name, strip_tag(name), short_name(name)) if each in every), None)
    if known or wishes.build_args or wishes.python:
        folder = known.folder if known else None
        register_image(state.images, name, folder, wishes.build_args, wishes.python)


def local_images(state: State) -> ImageService:
    """Every image that can be used here."""
    return ImageService(image_folders(), state.images, state.cache / "images", hints=HINTS)


def check_images(state: State, images: Iterable[str]) -> None:
    """Raises CannotBeUsed for an image that cannot be had: its pods would wait for it for ever."""
    for name in images:
        try:
            local_images(state).check(name)
        except ImageError as error:
            raise CannotBeUsed(str(error)) from None


def check_devices(job: Document) -> None:
    """Raises CannotBeUsed where the job asks for more devices than this machine has: it would wait for ever."""
    there = {GPU: detect_machine().gpus}
    for name, number in devices_of(job).items():
        if number > there.get(name, 0):
            raise CannotBeUsed(
                f"the job asks for {number} {name}, and this machine has {there.get(name, 0)}: "
                "run it with --cpu, or on a cluster that has them (--context)"
            )
