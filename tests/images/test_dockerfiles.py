"""Local mode supports every instruction of the Dockerfile of each documented image."""

import re
from pathlib import Path

import pytest
import yaml

from paddle_operator.local.images.image_config import ImageConfig, read_image_config
from paddle_operator.local.images.run_instructions import pip_commands
from tests.images.programs import IMAGES

ROOT = IMAGES.parent
OPERATOR_IMAGE = "controller"  # not the image of a job
DOCKERFILES = {
    path.parent.name: path for path in sorted(IMAGES.glob("*/Dockerfile")) if path.parent.name != OPERATOR_IMAGE
}
PROGRAM_FOLDERS = {"demo-resnet": "resnet", "demo-wide-and-deep": "wide_and_deep"}
PINNED = re.compile(r"[a-z0-9]+==\d[\d.]*")


def read_config(image: str, **build_arguments: str) -> ImageConfig:
    return read_image_config(DOCKERFILES[image], build_arguments, resolve_base=lambda _: None)


def pip_requirements(config: ImageConfig) -> list[str]:
    commands = [command.arguments for run in config.runs for command in pip_commands(run)]
    assert {command[0] for command in commands} == {"install"}
    return [requirement for command in commands for requirement in command[1:]]


def images_in(path: Path) -> set[str]:
    """The last path component of each image name, without its tag."""
    return set(re.findall(r"image: registry\.baidubce\.com/(?:paddle-operator|kuizhiqing)/([\w-]+):", path.read_text()))


def test_every_documented_image_has_a_folder() -> None:
    documents = [*ROOT.glob("deploy/examples/*.yaml"), *ROOT.glob("deploy/elastic/*.yaml")]
    documents += ROOT.glob("tests/corpus/user-guide-*.yaml")
    named = set().union(*map(images_in, documents))
    assert named == DOCKERFILES.keys() == {*PROGRAM_FOLDERS, "paddle-ubuntu"}


@pytest.mark.parametrize("image", DOCKERFILES)
def test_installed_packages_are_pinned(image: str) -> None:
    requirements = pip_requirements(read_config(image))
    assert len(requirements) >= 3
    assert [each for each in requirements if not PINNED.fullmatch(each)] == []


@pytest.mark.parametrize("image", DOCKERFILES)
def test_no_instruction_is_ignored(image: str) -> None:
    config = read_config(image)
    assert config.warnings == ()
    assert config.base == "python:3.11"


@pytest.mark.parametrize("image", DOCKERFILES)
def test_paddle_version_is_a_build_argument(image: str) -> None:
    assert "paddlepaddle==3.0.0" in pip_requirements(read_config(image, PADDLE="3.0.0"))


@pytest.mark.parametrize(("image", "folder"), PROGRAM_FOLDERS.items())
def test_working_directory_has_the_program(image: str, folder: str) -> None:
    config = read_config(image)
    (copy,) = config.copies
    assert (copy.sources, copy.target, config.working_directory) == ((folder,), f"/{folder}", f"/{folder}")
    *_, program = config.entrypoint or config.command
    assert (IMAGES / image / folder / program).is_file()


def test_commands_match_the_user_guide() -> None:
    assert read_config("demo-wide-and-deep").entrypoint == ("python3", "train.py")
    resnet = read_config("demo-resnet")
    guide = yaml.safe_load((ROOT / "tests/corpus/user-guide-2.yaml").read_text())
    container = guide["spec"]["worker"]["template"]["spec"]["containers"][0]
    assert (resnet.entrypoint, resnet.command) == ((), (*container["command"], *container["args"]))


@pytest.mark.parametrize("image", ["demo-wide-and-deep", "paddle-ubuntu"])
def test_paddle_has_ps_mode_and_its_protobuf(image: str) -> None:
    requirements = pip_requirements(read_config(image))
    assert "paddlepaddle==2.6.2" in requirements
    assert any(re.match(r"protobuf==[3-6]\.", each) for each in requirements)
