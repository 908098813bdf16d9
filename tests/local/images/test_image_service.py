"""From an image's name to what a container needs, with real virtual environments and wheels of our own."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_operator.local.cri import Image, ImageError
from paddle_operator.local.images.image_service import LocalImages, last_part, register_image, without_tag
from paddle_operator.local.sandbox.sandbox import NamespaceSandbox
from tests.local.containers import SOURCES, ran, until
from tests.local.image_folders import PYTHON_ONLY, a_folder, a_wheel

HERE = f"FROM python:3.{sys.version_info[1]}\n"


class Machine:
    """Image folders, a cache, and what was told while images were made."""

    def __init__(self, folder: Path) -> None:
        self.folders, self.registered, self.cache = folder / "images", folder / "images.json", folder / "cache"
        self.told: list[str] = []

    def images(self, **settings: Path | dict[str, str]) -> LocalImages:
        return LocalImages([self.folders], self.registered, self.cache, **settings)  # type: ignore[arg-type]

    async def find(self, name: str, **settings: Path | dict[str, str]) -> Image:
        return await self.images(**settings).find(name, self.told.append)

    async def refusal(self, name: str, **settings: Path | dict[str, str]) -> ImageError:
        with pytest.raises(ImageError) as refused:
            await self.find(name, **settings)
        assert "\n" not in str(refused.value)
        return refused.value

    def environments(self) -> list[Path]:
        return [path for path in (self.cache / "environments").iterdir() if not path.name.startswith(".")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def python(image: Image, code: str) -> str:
    (programs,) = image.programs
    return subprocess.run([programs / "python3", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def an_image_that_gets_stuck(machine: Machine, folder: Path) -> Path:
    """Where its build writes its pid before it sleeps; the second time it fails instead."""
    stuck = (
        "import os, sys, time\nif os.path.exists(os.environ['MARK']): sys.exit('again')\n"
        "open(os.environ['MARK'], 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    lines = "COPY stuck /stuck\nRUN pip install --no-index --no-build-isolation /stuck\n"
    a_folder(machine.folders / "demo", f"{HERE}ENV MARK={folder}/mark\n{lines}", **{"stuck/setup__py": stuck})
    return folder / "mark"


@pytest.mark.parametrize(
    ("name", "last", "untagged"),
    [
        ("demo", "demo", "demo"),
        ("demo:v1", "demo", "demo"),
        ("registry.example:5000/team/demo-wide_deep:v1", "demo-wide_deep", "registry.example:5000/team/demo-wide_deep"),
        (f"a/demo:v1@sha256:{'0' * 64}", "demo", "a/demo"),
    ],
)
def test_short_name_drops_registry_tag_and_digest(name: str, last: str, untagged: str) -> None:
    assert (last_part(name), without_tag(name)) == (last, untagged)


@pytest.mark.parametrize("name", ["", "Demo", "a b", "demo:", "/demo", "demo@sha256:1"])
async def test_invalid_name_has_the_kubelets_message(machine: Machine, name: str) -> None:
    refused = await machine.refusal(name)
    assert refused.reason == "InvalidImageName"
    assert str(refused).startswith(f'couldn\'t parse image name "{name}"')


async def test_unknown_image_lists_known_images_and_fixes(machine: Machine) -> None:
    a_folder(machine.folders / "demo", HERE)
    register_image(machine.registered, "mine", machine.folders / "demo")
    refused = await machine.refusal("registry.example/other:v1")
    assert refused.reason == "ErrImagePull"
    for part in ('"registry.example/other:v1"', "demo, mine", "--image other=DIR", "--python"):
        assert part in str(refused)


async def test_pip_lines_become_a_venv_and_files_become_mounts(machine: Machine) -> None:
    lines = f"COPY wheels /wheels\nRUN pip install {PYTHON_ONLY} /wheels/*.whl\n".replace(
        "*.whl", "tiny-1.0-py3-none-any.whl"
    )
    text = f'{HERE}{lines}ENV A=1\nADD app /app\nWORKDIR /app\nENTRYPOINT ["python3", "train.py"]\nCMD ["--fast"]\n'
    folder = a_folder(
        machine.folders / "demo", text, **{"app/train__py": "import tiny, sys; print(tiny.WORD, sys.argv[1:])"}
    )
    a_wheel(folder / "wheels", "tiny")
    image = await machine.find("registry.example/team/demo:v1")
    assert (image.entrypoint, image.command) == (("python3", "train.py"), ("--fast",))
    assert (image.environment, image.working_directory) == ({"A": "1"}, "/app")
    assert python(image, "import tiny; print(tiny.WORD)") == "hello"
    assert {mount.target for mount in image.mounts} == {"/app", "/wheels"}
    assert "installing tiny" in machine.told

    sandbox = NamespaceSandbox([machine.cache])  # the whole way: what the node does with it
    path = f"{image.programs[0]}:/usr/bin:/bin"
    result = await ran(
        sandbox, *image.entrypoint, *image.command,
        environment={"PATH": path}, mounts=image.mounts, working_directory=image.working_directory,
    )  # fmt: skip
    assert (result.code, result.output) == (0, "hello ['--fast']\n")
    installed = await ran(sandbox, "tiny", environment={"PATH": path})  # a script knows its environment's place
    assert installed.output == "hello\n"


async def test_second_pull_uses_the_cache(machine: Machine) -> None:
    folder = a_folder(
        machine.folders / "demo", f"{HERE}COPY w /w\nRUN pip install {PYTHON_ONLY} /w/tiny-1.0-py3-none-any.whl\n"
    )
    a_wheel(folder / "w", "tiny")
    first = await machine.find("demo")
    (programs,) = first.programs
    (programs / "pip").unlink()
    machine.told.clear()
    assert await machine.find("demo") == first
    assert machine.told == []


async def test_cache_key_depends_on_requirements_content(machine: Machine) -> None:
    text = f"{HERE}WORKDIR /app\nCOPY . .\nRUN pip install {PYTHON_ONLY} -r requirements.txt\n"
    folder = a_folder(machine.folders / "demo", text, requirements__txt="-r more.txt\n", more__txt="", train__py="1")
    first = await machine.find("demo")
    (folder / "train.py").write_text("2")
    second = await machine.find("demo")
    assert (second.programs, second.mounts != first.mounts) == (first.programs, True)
    file = a_wheel(folder, "tiny")
    (folder / "more.txt").write_text(f"./{file}\n")
    with pytest.raises(ImageError):  # a path in a requirements file is looked for where pip runs
        await machine.find("demo")
    (folder / "more.txt").write_text("--find-links .\n")
    third = await machine.find("demo")
    assert third.programs != first.programs


async def test_uncopied_requirements_file_is_named(machine: Machine) -> None:
    a_folder(machine.folders / "demo", f"{HERE}RUN pip install -r requirements.txt\n", requirements__txt="")
    assert "requirements.txt is not among what was copied before" in str(await machine.refusal("demo"))


async def test_derived_image_has_its_bases_packages(machine: Machine) -> None:
    for name, base in (("below", HERE), ("above", "FROM registry.example/x/below:2.0\n")):
        file = f"tiny_{name}-1.0-py3-none-any.whl"
        folder = a_folder(machine.folders / name, f"{base}COPY {file} /\nRUN pip install {PYTHON_ONLY} /{file}\n")
        a_wheel(folder, f"tiny_{name}", says=name)
    image = await machine.find("above")
    assert python(image, "import tiny_above, tiny_below; print(tiny_above.WORD, tiny_below.WORD)") == "above below"


async def test_image_cycle_is_refused(machine: Machine) -> None:
    a_folder(machine.folders / "one", "FROM two\n")
    a_folder(machine.folders / "two", "FROM one\n")
    assert "is built on itself" in str(await machine.refusal("one"))


async def test_build_arguments_change_the_venv(machine: Machine) -> None:
    text = f"{HERE}ARG V=1.0\nCOPY w /w\nRUN pip install {PYTHON_ONLY} -f /w tiny==$V\n"
    folder = a_folder(machine.folders / "demo", text)
    for version in ("1.0", "2.0"):
        a_wheel(folder / "w", "tiny", version, says=version)
    register_image(machine.registered, "newer", folder, {"V": "2.0"})
    for name, settings, version in (("demo", {}, "1.0"), ("demo", {"V": "2.0"}, "2.0"), ("newer", {}, "2.0")):
        image = await machine.find(name, build_arguments=settings)
        assert python(image, "import tiny; print(tiny.WORD)") == version
    assert len(machine.environments()) == 2


async def test_registration_precedence(machine: Machine) -> None:
    for word in ("folder", "last", "full"):
        a_folder(machine.folders.parent / word / "demo", f"{HERE}ENV WORD={word}\n")
    machine.folders = machine.folders.parent / "folder"
    words = [(await machine.find("a/demo:v1")).environment["WORD"]]
    for name, word in (("demo", "last"), ("a/demo", "full")):
        register_image(machine.registered, name, machine.folders.parent / word / "demo")
        words.append((await machine.find("a/demo:v1")).environment["WORD"])
    assert words == ["folder", "last", "full"]
    assert (await machine.find("b/demo")).environment["WORD"] == "last"


async def test_invalid_registrations_file_is_named(machine: Machine) -> None:
    for text in ("{", "[]", '{"a": 1}'):
        machine.registered.write_text(text)
        assert f"{machine.registered} cannot be read" in str(await machine.refusal("demo"))
    register_image(machine.registered, "demo", a_folder(machine.folders / "demo", HERE))
    assert json.loads(machine.registered.read_text())["demo"]["folder"] == str(machine.folders / "demo")


async def test_unsupported_run_line_names_the_line_and_fixes(machine: Machine) -> None:
    a_folder(machine.folders / "demo", f"{HERE}\nRUN make install\n")
    sentence = str(await machine.refusal("demo"))
    for part in (
        f"{machine.folders}/demo/Dockerfile:3: RUN make install cannot be obeyed",
        "--image demo=DIR",
        "--python",
    ):
        assert part in sentence


async def test_host_python_skips_run_lines(machine: Machine) -> None:
    a_folder(machine.folders / "demo", f"{HERE}RUN make install\nADD app /app\nCMD x\n", **{"app/train__py": ""})
    mine = Path(sys.executable)
    image = await machine.find("demo", host_python=mine)
    assert (image.programs[-1], image.command) == (mine.parent, ("/bin/sh", "-c", "x"))
    assert [mount.target for mount in image.mounts] == ["/app"]
    assert (await machine.find("unknown:v1", host_python=mine)).programs == image.programs
    register_image(machine.registered, "other", python=mine)
    assert (await machine.find("other")).programs == image.programs


@pytest.mark.parametrize("name", ["python", "python3"])
async def test_host_python_has_both_names(machine: Machine, name: str) -> None:
    image = await machine.find("unknown:v1", host_python=Path(sys.executable))
    command = [str(image.programs[0] / name), "-c", "import sys; print(sys.prefix, *sys.argv[1:])", "a b"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.prefix} a b\n"


async def test_pip_failure_shows_its_last_lines_and_a_hint(machine: Machine) -> None:
    a_folder(machine.folders / "demo", f"{HERE}RUN pip install --no-index paddlepaddle==2.6.2\n")
    hints = {"paddlepaddle==2.6.2": "2.6.2 has wheels for Python 3.11 and 3.12 only"}
    sentence = str(await machine.refusal("demo", hints=hints))
    assert "No matching distribution found for paddlepaddle==2.6.2" in sentence
    assert "(2.6.2 has wheels for Python 3.11 and 3.12 only)" in sentence
    assert f"pip failed for {machine.folders}/demo/Dockerfile" in sentence
    assert "--image demo=DIR" in sentence


async def test_missing_python_version_falls_back_with_a_note(machine: Machine) -> None:
    a_folder(machine.folders / "demo", "FROM python:3.99-slim\n")
    image = await machine.find("demo")
    assert python(image, "import sys; print(sys.version_info[1])") == str(sys.version_info[1])
    assert "asks for Python 3.99, which this machine lacks" in machine.told[0]


async def test_concurrent_pulls_build_one_venv(machine: Machine) -> None:
    folder = a_folder(machine.folders / "demo", f"{HERE}COPY w /w\nRUN pip install {PYTHON_ONLY} -f /w tiny\n")
    a_wheel(folder / "w", "tiny")
    others = [machine.find("demo") for _ in range(3)]
    found = await asyncio.gather(*others)
    assert len({image.programs for image in found}) == 1
    assert len([line for line in machine.told if line.startswith("making a Python")]) == 1
    assert "waiting for the environment, which is being made already" in machine.told


async def test_killed_build_is_not_used(machine: Machine, tmp_path: Path) -> None:
    mark = an_image_that_gets_stuck(machine, tmp_path)
    build = f"""
import asyncio
from pathlib import Path
from paddle_operator.local.images.image_service import LocalImages
images = LocalImages([Path({str(machine.folders)!r})], Path("/none"), Path({str(machine.cache)!r}))
asyncio.run(images.find("demo", print))
"""
    builder = await asyncio.create_subprocess_exec(sys.executable, "-c", build, env={"PYTHONPATH": str(SOURCES)})
    await until(lambda: mark.exists() and mark.read_text() != "")
    builder.kill()
    await builder.wait()
    pid = int(mark.read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists())

    assert len(machine.environments()) == 1
    assert "pip failed" in str(await machine.refusal("demo"))  # it was begun anew


async def test_cancelled_build_leaves_no_process(machine: Machine, tmp_path: Path) -> None:
    mark = an_image_that_gets_stuck(machine, tmp_path)
    making = asyncio.create_task(machine.find("demo"))
    await until(lambda: mark.exists() and mark.read_text() != "")
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
