"""Every image of the documents has a Dockerfile that local mode can obey to the last line."""

import re
from pathlib import Path

import pytest
import yaml

from paddle_operator.local.images.image_config import ImageConfig, read_image_config
from paddle_operator.local.images.run_instructions import pip_commands
from tests.images.programs import IMAGES

ROOT = IMAGES.parent
OF_THE_OPERATOR = "controller"  # no image of a job
DOCKERFILES = {
    path.parent.name: path for path in sorted(IMAGES.glob("*/Dockerfile")) if path.parent.name != OF_THE_OPERATOR
}
WITH_A_PROGRAM = {"demo-resnet": "resnet", "demo-wide-and-deep": "wide_and_deep"}
PINNED = re.compile(r"[a-z0-9]+==\d[\d.]*")


def read(image: str, **build_arguments: str) -> ImageConfig:
    return read_image_config(DOCKERFILES[image], build_arguments, resolve_base=lambda _: None)


def installed(made_of: ImageConfig) -> list[str]:
    commands = [command.arguments for run in made_of.runs for command in pip_commands(run)]
    assert {command[0] for command in commands} == {"install"}
    return [requirement for command in commands for requirement in command[1:]]


def images_in(path: Path) -> set[str]:
    """The last part of each image's name, without its tag."""
    return set(re.findall(r"image: registry\.baidubce\.com/(?:paddle-operator|kuizhiqing)/([\w-]+):", path.read_text()))


def test_every_documented_image_has_a_folder() -> None:
    documents = [*ROOT.glob("deploy/examples/*.yaml"), *ROOT.glob("deploy/elastic/*.yaml")]
    documents += ROOT.glob("tests/corpus/user-guide-*.yaml")
    named = set().union(*map(images_in, documents))
    assert named == DOCKERFILES.keys() == {*WITH_A_PROGRAM, "paddle-ubuntu"}


@pytest.mark.parametrize("image", DOCKERFILES)
def test_installed_packages_are_pinned(image: str) -> None:
    requirements = installed(read(image))
    assert len(requirements) >= 3
    assert [each for each in requirements if not PINNED.fullmatch(each)] == []


@pytest.mark.parametrize("image", DOCKERFILES)
def test_no_instruction_is_ignored(image: str) -> None:
    made_of = read(image)
    assert made_of.warnings == ()
    assert made_of.base == "python:3.11"


@pytest.mark.parametrize("image", DOCKERFILES)
def test_paddle_version_is_a_build_argument(image: str) -> None:
    assert "paddlepaddle==3.0.0" in installed(read(image, PADDLE="3.0.0"))


@pytest.mark.parametrize(("image", "folder"), WITH_A_PROGRAM.items())
def test_working_directory_has_the_program(image: str, folder: str) -> None:
    made_of = read(image)
    (copy,) = made_of.copies
    assert (copy.sources, copy.target, made_of.working_directory) == ((folder,), f"/{folder}", f"/{folder}")
    *_, program = made_of.entrypoint or made_of.command
    assert (IMAGES / image / folder / program).is_file()


def test_commands_match_the_user_guide() -> None:
    assert read("demo-wide-and-deep").entrypoint == ("python3", "train.py")
    resnet = read("demo-resnet")
    guide = yaml.safe_load((ROOT / "tests/corpus/user-guide-2.yaml").read_text())
    container = guide["spec"]["worker"]["template"]["spec"]["containers"][0]
    assert (resnet.entrypoint, resnet.command) == ((), (*container["command"], *container["args"]))


@pytest.mark.parametrize("image", ["demo-wide-and-deep", "paddle-ubuntu"])
def test_paddle_has_ps_mode_and_its_protobuf(image: str) -> None:
    requirements = installed(read(image))
    assert "paddlepaddle==2.6.2" in requirements
    assert any(re.match(r"protobuf==[3-6]\.", each) for each in requirements)
