"""Every Dockerfile can be obeyed without a container engine, and every image of the documents has one."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.images.programs import IMAGES

ROOT = IMAGES.parent
DOCKERFILES = {path.parent.name: path for path in sorted(IMAGES.glob("*/Dockerfile"))}
OBEYED = {"FROM", "ARG", "RUN", "ADD", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}
INSTALL = re.compile(r"python3? -m pip install --no-cache-dir (.+)")
PINNED = re.compile(r"[a-z0-9]+==(\d[\d.]*|\$\{PADDLE\})")


def instructions(path: Path) -> list[tuple[str, str]]:
    """Name and rest of each line; none of ours goes on in the next."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def images_in(text: str) -> set[str]:
    """The last part of each image's name, without its tag."""
    return set(re.findall(r"image: registry\.baidubce\.com/(?:paddle-operator|kuizhiqing)/([\w-]+):", text))


def test_every_image_of_the_examples_and_of_the_user_guide_has_a_folder() -> None:
    documents = [*ROOT.glob("deploy/examples/*.yaml"), *ROOT.glob("deploy/elastic/*.yaml")]
    documents += ROOT.glob("tests/corpus/user-guide-*.yaml")
    named = set().union(*(images_in(path.read_text()) for path in documents))
    assert named == DOCKERFILES.keys() == {"demo-resnet", "demo-wide-and-deep", "paddle-ubuntu"}


@pytest.mark.parametrize("image", DOCKERFILES)
def test_only_lines_that_local_mode_obeys(image: str) -> None:
    found = instructions(DOCKERFILES[image])
    assert {name for name, _ in found} <= OBEYED
    assert found[0] == ("FROM", "python:3.11")


@pytest.mark.parametrize("image", DOCKERFILES)
def test_everything_that_is_installed_is_pinned(image: str) -> None:
    runs = [rest for name, rest in instructions(DOCKERFILES[image]) if name == "RUN"]
    for run in runs:
        installed = INSTALL.fullmatch(run)
        assert installed, run
        assert all(PINNED.fullmatch(requirement) for requirement in installed[1].split()), run


@pytest.mark.parametrize("image", DOCKERFILES)
def test_what_is_added_is_there_and_is_where_the_program_starts(image: str) -> None:
    path = DOCKERFILES[image]
    lines = dict(instructions(path))
    if "ADD" not in lines:
        return
    source, target = lines["ADD"].split()
    assert lines["WORKDIR"] == target
    *_, program = json.loads(lines.get("ENTRYPOINT") or lines["CMD"])
    assert (path.parent / source / program).is_file()


def test_the_commands_are_those_of_the_user_guide() -> None:
    wide_and_deep, resnet = (dict(instructions(DOCKERFILES[f"demo-{name}"])) for name in ("wide-and-deep", "resnet"))
    assert json.loads(wide_and_deep["ENTRYPOINT"]) == ["python3", "train.py"]
    assert json.loads(resnet["CMD"]) == ["python", "-m", "paddle.distributed.launch", "train_fleet.py"]
    guide = yaml.safe_load((ROOT / "tests/corpus/user-guide-2.yaml").read_text())
    container = guide["spec"]["worker"]["template"]["spec"]["containers"][0]
    assert [*container["command"], *container["args"]] == json.loads(resnet["CMD"])


@pytest.mark.parametrize("image", ["demo-wide-and-deep", "paddle-ubuntu"])
def test_a_paddle_that_has_parameter_servers_and_the_protobuf_it_needs(image: str) -> None:
    lines = dict(instructions(DOCKERFILES[image]))
    assert lines["ARG"] == "PADDLE=2.6.2"
    assert re.search(r"protobuf==[3-6]\.", lines["RUN"])
