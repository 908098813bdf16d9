"""From an image's name to what a container needs, with real virtual environments and wheels of our own."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddle_operator.local.cri import Image, ImageError
from paddle_operator.local.images.image_service import ImageService, register_image, short_name, strip_tag
from paddle_operator.local.sandbox.sandbox import NamespaceSandbox
from tests.local.containers import SOURCES, run_in_sandbox, wait_until
from tests.local.image_folders import PYTHON_ONLY, make_image_folder, make_wheel

THIS_PYTHON = f"FROM python:3.{sys.version_info[1]}\n"


class ImageHarness:
    """Image folders, a cache, and the progress that was reported."""

    def __init__(self, folder: Path) -> None:
        self.directories, self.registered, self.cache = folder / "images", folder / "images.json", folder / "cache"
        self.progress: list[str] = []

    def images(self, **settings: Path | dict[str, str]) -> ImageService:
        return ImageService([self.directories], self.registered, self.cache, **settings)  # type: ignore[arg-type]

    async def find(self, name: str, **settings: Path | dict[str, str]) -> Image:
        return await self.images(**settings).find(name, self.progress.append)

    async def refusal(self, name: str, **settings: Path | dict[str, str]) -> ImageError:
        with pytest.raises(ImageError) as refused:
            await self.find(name, **settings)
        assert "\n" not in str(refused.value)
        return refused.value

    def environments(self) -> list[Path]:
        return [path for path in (self.cache / "environments").iterdir() if not path.name.startswith(".")]


@pytest.fixture
def harness(tmp_path: Path) -> ImageHarness:
    return ImageHarness(tmp_path)


def python(image: Image, code: str) -> str:
    (programs,) = image.programs
    return subprocess.run([programs / "python3", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def make_hanging_image(harness: ImageHarness, folder: Path) -> Path:
    """Where its build writes its pid before it sleeps; the second time it fails instead."""
    stuck = (
        "import os, sys, time\nif os.path.exists(os.environ['MARK']): sys.exit('again')\n"
        "open(os.environ['MARK'], 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    lines = "COPY stuck /stuck\nRUN pip install --no-index --no-build-isolation /stuck\n"
    make_image_folder(
        harness.directories / "demo", f"{THIS_PYTHON}ENV MARK={folder}/mark\n{lines}", **{"stuck/setup__py": stuck}
    )
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
    assert (short_name(name), strip_tag(name)) == (last, untagged)


@pytest.mark.parametrize("name", ["", "Demo", "a b", "demo:", "/demo", "demo@sha256:1"])
async def test_invalid_name_has_the_kubelets_message(harness: ImageHarness, name: str) -> None:
    refused = await harness.refusal(name)
    assert refused.reason == "InvalidImageName"
    assert str(refused).startswith(f'couldn\'t parse image name "{name}"')


async def test_unknown_image_lists_known_images_and_fixes(harness: ImageHarness) -> None:
    make_image_folder(harness.directories / "demo", THIS_PYTHON)
    register_image(harness.registered, "mine", harness.directories / "demo")
    refused = await harness.refusal("registry.example/other:v1")
    assert refused.reason == "ErrImagePull"
    for part in ('"registry.example/other:v1"', "demo, mine", "--image other=DIR", "--python"):
        assert part in str(refused)


async def test_pip_lines_become_a_venv_and_files_become_mounts(harness: ImageHarness) -> None:
    lines = f"COPY wheels /wheels\nRUN pip install {PYTHON_ONLY} /wheels/*.whl\n".replace(
        "*.whl", "tiny-1.0-py3-none-any.whl"
    )
    text = (
        f'{THIS_PYTHON}{lines}ENV A=1\nADD app /app\nWORKDIR /app\nENTRYPOINT ["python3", "train.py"]\nCMD ["--fast"]\n'
    )
    folder = make_image_folder(
        harness.directories / "demo", text, **{"app/train__py": "import tiny, sys; print(tiny.WORD, sys.argv[1:])"}
    )
    make_wheel(folder / "wheels", "tiny")
    image = await harness.find("registry.example/team/demo:v1")
    assert (image.entrypoint, image.command) == (("python3", "train.py"), ("--fast",))
    assert (image.environment, image.working_directory) == ({"A": "1"}, "/app")
    assert python(image, "import tiny; print(tiny.WORD)") == "hello"
    assert {mount.target for mount in image.mounts} == {"/app", "/wheels"}
    assert "installing tiny" in harness.progress

    sandbox = NamespaceSandbox([harness.cache])  # the whole way: what the node does with it
    path = f"{image.programs[0]}:/usr/bin:/bin"
    result = await run_in_sandbox(
        sandbox, *image.entrypoint, *image.command,
        environment={"PATH": path}, mounts=image.mounts, working_directory=image.working_directory,
    )  # fmt: skip
    assert (result.code, result.output) == (0, "hello ['--fast']\n")
    # The script's first line has the path of its environment.
    installed = await run_in_sandbox(sandbox, "tiny", environment={"PATH": path})
    assert installed.output == "hello\n"


async def test_second_pull_uses_the_cache(harness: ImageHarness) -> None:
    folder = make_image_folder(
        harness.directories / "demo",
        f"{THIS_PYTHON}COPY w /w\nRUN pip install {PYTHON_ONLY} /w/tiny-1.0-py3-none-any.whl\n",
    )
    make_wheel(folder / "w", "tiny")
    first = await harness.find("demo")
    (programs,) = first.programs
    (programs / "pip").unlink()
    harness.progress.clear()
    assert await harness.find("demo") == first
    assert harness.progress == []


async def test_cache_key_depends_on_requirements_content(harness: ImageHarness) -> None:
    text = f"{THIS_PYTHON}WORKDIR /app\nCOPY . .\nRUN pip install {PYTHON_ONLY} -r requirements.txt\n"
    folder = make_image_folder(
        harness.directories / "demo", text, requirements__txt="-r more.txt\n", more__txt="", train__py="1"
    )
    first = await harness.find("demo")
    (folder / "train.py").write_text("2")
    second = await harness.find("demo")
    assert (second.programs, second.mounts != first.mounts) == (first.programs, True)
    file = make_wheel(folder, "tiny")
    (folder / "more.txt").write_text(f"./{file}\n")
    with pytest.raises(ImageError):  # a path in a requirements file is looked for where pip runs
        await harness.find("demo")
    (folder / "more.txt").write_text("--find-links .\n")
    third = await harness.find("demo")
    assert third.programs != first.programs


async def test_uncopied_requirements_file_is_named(harness: ImageHarness) -> None:
    make_image_folder(
        harness.directories / "demo", f"{THIS_PYTHON}RUN pip install -r requirements.txt\n", requirements__txt=""
    )
    assert "no earlier COPY or ADD brings requirements.txt" in str(await harness.refusal("demo"))


async def test_derived_image_has_its_bases_packages(harness: ImageHarness) -> None:
    for name, base in (("below", THIS_PYTHON), ("above", "FROM registry.example/x/below:2.0\n")):
        file = f"tiny_{name}-1.0-py3-none-any.whl"
        folder = make_image_folder(
            harness.directories / name, f"{base}COPY {file} /\nRUN pip install {PYTHON_ONLY} /{file}\n"
        )
        make_wheel(folder, f"tiny_{name}", says=name)
    image = await harness.find("above")
    assert python(image, "import tiny_above, tiny_below; print(tiny_above.WORD, tiny_below.WORD)") == "above below"


async def test_image_cycle_is_refused(harness: ImageHarness) -> None:
    make_image_folder(harness.directories / "one", "FROM two\n")
    make_image_folder(harness.directories / "two", "FROM one\n")
    assert "is built on itself" in str(await harness.refusal("one"))


async def test_build_arguments_change_the_venv(harness: ImageHarness) -> None:
    text = f"{THIS_PYTHON}ARG V=1.0\nCOPY w /w\nRUN pip install {PYTHON_ONLY} -f /w tiny==$V\n"
    folder = make_image_folder(harness.directories / "demo", text)
    for version in ("1.0", "2.0"):
        make_wheel(folder / "w", "tiny", version, says=version)
    register_image(harness.registered, "newer", folder, {"V": "2.0"})
    for name, settings, version in (("demo", {}, "1.0"), ("demo", {"V": "2.0"}, "2.0"), ("newer", {}, "2.0")):
        image = await harness.find(name, build_arguments=settings)
        assert python(image, "import tiny; print(tiny.WORD)") == version
    assert len(harness.environments()) == 2


async def test_registration_precedence(harness: ImageHarness) -> None:
    for keyword in ("folder", "last", "full"):
        make_image_folder(harness.directories.parent / keyword / "demo", f"{THIS_PYTHON}ENV WORD={keyword}\n")
    harness.directories = harness.directories.parent / "folder"
    split_words = [(await harness.find("a/demo:v1")).environment["WORD"]]
    for name, keyword in (("demo", "last"), ("a/demo", "full")):
        register_image(harness.registered, name, harness.directories.parent / keyword / "demo")
        split_words.append((await harness.find("a/demo:v1")).environment["WORD"])
    assert split_words == ["folder", "last", "full"]
    assert (await harness.find("b/demo")).environment["WORD"] == "last"


async def test_invalid_registrations_file_is_named(harness: ImageHarness) -> None:
    for text in ("{", "[]", '{"a": 1}'):
        harness.registered.write_text(text)
        assert f"{harness.registered} cannot be read" in str(await harness.refusal("demo"))
    register_image(harness.registered, "demo", make_image_folder(harness.directories / "demo", THIS_PYTHON))
    assert json.loads(harness.registered.read_text())["demo"]["folder"] == str(harness.directories / "demo")


async def test_unsupported_run_line_names_the_line_and_fixes(harness: ImageHarness) -> None:
    make_image_folder(harness.directories / "demo", f"{THIS_PYTHON}\nRUN make install\n")
    message = str(await harness.refusal("demo"))
    for part in (
        f"{harness.directories}/demo/Dockerfile:3: RUN make install is not supported",
        "--image demo=DIR",
        "--python",
    ):
        assert part in message


async def test_host_python_skips_run_lines(harness: ImageHarness) -> None:
    make_image_folder(
        harness.directories / "demo",
        f"{THIS_PYTHON}RUN make install\nADD app /app\nCMD x\n",
        **{"app/train__py": ""},
    )
    mine = Path(sys.executable)
    image = await harness.find("demo", host_python=mine)
    assert (image.programs[-1], image.command) == (mine.parent, ("/bin/sh", "-c", "x"))
    assert [mount.target for mount in image.mounts] == ["/app"]
    assert (await harness.find("unknown:v1", host_python=mine)).programs == image.programs
    register_image(harness.registered, "other", python=mine)
    assert (await harness.find("other")).programs == image.programs


@pytest.mark.parametrize("name", ["python", "python3"])
async def test_host_python_has_both_names(harness: ImageHarness, name: str) -> None:
    image = await harness.find("unknown:v1", host_python=Path(sys.executable))
    command = [str(image.programs[0] / name), "-c", "import sys; print(sys.prefix, *sys.argv[1:])", "a b"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{sys.prefix} a b\n"


async def test_pip_failure_shows_its_last_lines_and_a_hint(harness: ImageHarness) -> None:
    make_image_folder(harness.directories / "demo", f"{THIS_PYTHON}RUN pip install --no-index paddlepaddle==2.6.2\n")
    hints = {"paddlepaddle==2.6.2": "2.6.2 has wheels for Python 3.11 and 3.12 only"}
    message = str(await harness.refusal("demo", hints=hints))
    assert "No matching distribution found for paddlepaddle==2.6.2" in message
    assert "(2.6.2 has wheels for Python 3.11 and 3.12 only)" in message
    assert f"pip failed for {harness.directories}/demo/Dockerfile" in message
    assert "--image demo=DIR" in message


async def test_missing_python_version_falls_back_with_a_note(harness: ImageHarness) -> None:
    make_image_folder(harness.directories / "demo", "FROM python:3.99-slim\n")
    image = await harness.find("demo")
    assert python(image, "import sys; print(sys.version_info[1])") == str(sys.version_info[1])
    assert "asks for Python 3.99, which is not installed here" in harness.progress[0]


async def test_concurrent_pulls_build_one_venv(harness: ImageHarness) -> None:
    folder = make_image_folder(
        harness.directories / "demo", f"{THIS_PYTHON}COPY w /w\nRUN pip install {PYTHON_ONLY} -f /w tiny\n"
    )
    make_wheel(folder / "w", "tiny")
    others = [harness.find("demo") for _ in range(3)]
    found = await asyncio.gather(*others)
    assert len({image.programs for image in found}) == 1
    assert len([line for line in harness.progress if line.startswith("creating a Python")]) == 1
    assert "waiting for another build of the same environment" in harness.progress


async def test_killed_build_is_not_used(harness: ImageHarness, tmp_path: Path) -> None:
    pid_file = make_hanging_image(harness, tmp_path)
    build = f"""
import asyncio
from pathlib import Path
from paddle_operator.local.images.image_service import ImageService
images = ImageService([Path({str(harness.directories)!r})], Path("/none"), Path({str(harness.cache)!r}))
asyncio.run(images.find("demo", print))
"""
    builder = await asyncio.create_subprocess_exec(sys.executable, "-c", build, env={"PYTHONPATH": str(SOURCES)})
    await wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    builder.kill()
    await builder.wait()
    pid = int(pid_file.read_text())
    await wait_until(lambda: not Path(f"/proc/{pid}").exists())

    assert len(harness.environments()) == 1
    assert "pip failed" in str(await harness.refusal("demo"))  # it was started again


async def test_cancelled_build_leaves_no_process(harness: ImageHarness, tmp_path: Path) -> None:
    pid_file = make_hanging_image(harness, tmp_path)
    building = asyncio.create_task(harness.find("demo"))
    await wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
