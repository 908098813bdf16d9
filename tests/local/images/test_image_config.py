from pathlib import Path

import pytest

from paddle_operator.local.cri import DEFAULT_PATH
from paddle_operator.local.images.dockerfile import DockerfileError
from paddle_operator.local.images.image_config import ImageConfig, UnsupportedInstruction, read_image_config
from paddle_operator.local.images.run_instructions import pip_commands


def read(
    folder: Path, text: str, resolve_base: dict[str, ImageConfig] | None = None, **build_arguments: str
) -> ImageConfig:
    (folder / "Dockerfile").write_text(text)
    return read_image_config(folder / "Dockerfile", build_arguments, (resolve_base or {}).get)


def pip(folder: Path, *lines: str) -> list[tuple[str, ...]]:
    return calls_of_pip(read(folder, "\n".join(["FROM a", *lines])))


def calls_of_pip(layer_of: ImageConfig) -> list[tuple[str, ...]]:
    return [command.arguments for run in layer_of.runs for command in pip_commands(run)]


def test_arg_and_env_are_expanded_in_order(tmp_path: Path) -> None:
    text = 'FROM a\nARG V=1\nENV A=$V B="x y" C=z\\ w\nENV D $A$B\nENV PATH=/opt/bin:$PATH\n'
    layer_of = read(tmp_path, f"{text}WORKDIR /app/$A\nWORKDIR deep\n", V="2")
    assert layer_of.environment == {"A": "2", "B": "x y", "C": "z w", "D": "2x y", "PATH": f"/opt/bin:{DEFAULT_PATH}"}
    assert layer_of.working_directory == "/app/2/deep"


def test_arg_before_from_must_be_redeclared(tmp_path: Path) -> None:
    layer_of = read(tmp_path, "ARG V=3.11\nARG W=x\nFROM python:$V-slim\nARG V\nENV A=$V B=$W\n")
    assert layer_of.base == "python:3.11-slim"
    assert layer_of.environment == {"A": "3.11", "B": ""}


def test_undeclared_build_argument_is_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, "FROM a\nENV A=$V\n", V="2").environment == {"A": ""}


def test_derived_image_extends_its_base(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = read(tmp_path / "base", "FROM python:3.11\nRUN pip install a\nENV A=1 B=1\nWORKDIR /app\nCMD x\nCOPY f .\n")
    layer_of = read(tmp_path, 'FROM base\nRUN pip install b\nENV B=2\nENTRYPOINT ["y"]\n', {"base": base})
    assert layer_of.base == "python:3.11"
    assert layer_of.environment == {"A": "1", "B": "2"}
    assert calls_of_pip(layer_of) == [("install", "a"), ("install", "b")]
    assert (layer_of.entrypoint, layer_of.command) == (("y",), ())  # an ENTRYPOINT takes the CMD of below away
    assert layer_of.copies[0].context == tmp_path / "base"


def test_entrypoint_keeps_the_stages_own_cmd(tmp_path: Path) -> None:
    for text in ('CMD ["a"]\nENTRYPOINT ["b"]', 'ENTRYPOINT ["b"]\nCMD ["a"]'):
        layer_of = read(tmp_path, f"FROM a\n{text}\n")
        assert (layer_of.entrypoint, layer_of.command) == (("b",), ("a",))


def test_last_stage_may_build_on_an_earlier_one(tmp_path: Path) -> None:
    layer_of = read(tmp_path, "FROM a AS first\nENV A=1\nFROM b AS other\nENV B=1\nFROM first\nENV C=1\n")
    assert (layer_of.base, layer_of.environment) == ("a", {"A": "1", "C": "1"})


@pytest.mark.parametrize(
    ("line", "sources", "target"),
    [
        ("COPY a /b", ("a",), "/b"),
        ("COPY a b /c", ("a", "b"), "/c/"),
        ("ADD a /b/", ("a",), "/b/"),
        ("COPY . .", (".",), "/work/"),
        ("COPY a ./x", ("a",), "/work/x"),
        ('COPY ["a b", "/c"]', ("a b",), "/c"),
    ],
)
def test_copy_targets(tmp_path: Path, line: str, sources: tuple[str, ...], target: str) -> None:
    (copy,) = read(tmp_path, f"FROM x\nWORKDIR /work\n{line}\n").copies
    assert (copy.sources, copy.target, copy.unpacks_archives) == (sources, target, line.startswith("ADD"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("COPY --from=build /x /y", "not --from an image"),
        ("ADD https://example.com/x /y", "https://example.com/x is not a file of its own directory"),
        ('SHELL ["bash"]', "SHELL needs a container engine"),
        ("ONBUILD RUN x", "ONBUILD needs a container engine"),
    ],
)
def test_unsupported_instruction_names_its_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=message) as refused:
        read(tmp_path, f"FROM a\n\n{line}\n")
    assert str(refused.value).startswith(f"{tmp_path}/Dockerfile:3: {line.split()[0]}")


def test_instruction_before_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DockerfileError, match="ENV must not come before FROM"):
        read(tmp_path, "ENV A=1\nFROM a\n")


def test_ignored_instructions_give_a_warning(tmp_path: Path) -> None:
    layer_of = read(tmp_path, "FROM a\nUSER me\nEXPOSE 80\nLABEL x=y\nVOLUME /data\nHEALTHCHECK --interval=5s CMD x\n")
    assert layer_of.warnings == (
        "Dockerfile:2: USER is ignored",
        "Dockerfile:5: VOLUME is ignored",
    )


# RUN lines


def test_user_guide_lines_become_one_pip_call(tmp_path: Path) -> None:
    found = pip(
        tmp_path,
        "RUN apt update && apt install -y python3 python3-dev python3-pip",
        "RUN python3 -m pip install paddlepaddle==2.0.0 -i https://mirror.example/pypi/simple",
    )
    assert found == [("install", "paddlepaddle==2.0.0", "-i", "https://mirror.example/pypi/simple")]


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("pip install a && pip3 install b; pip3.11 install c", [("a",), ("b",), ("c",)]),
        ("pip install --no-cache-dir --user -rx.txt --constraint=y.txt", [("-r", "x.txt", "--constraint", "y.txt")]),
        ("pip install 'a>=1,<2' \"b[c]\"", [("a>=1,<2", "b[c]")]),
        ("pip install a==${V}", [("a==2",)]),
        ("/usr/bin/python3.11 -m pip install a", [("a",)]),
        ("apt-get install -y ca-certificates python3-venv && rm -rf /var/lib/apt/lists/*", []),
        ("pip install a && rm -rf /root/.cache/pip && pip cache purge", [("a",)]),
    ],
)
def test_pip_arguments(tmp_path: Path, line: str, arguments: list[tuple[str, ...]]) -> None:
    assert pip(tmp_path, "ARG V=2", f"RUN {line}") == [("install", *split_words) for split_words in arguments]


def test_run_exec_form(tmp_path: Path) -> None:
    assert pip(tmp_path, 'RUN ["pip", "install", "a"]') == [("install", "a")]


def test_pip_config_is_written_to_the_venv(tmp_path: Path) -> None:
    assert pip(tmp_path, "RUN pip config set global.index-url https://mirror.example/simple") == [
        ("config", "--site", "set", "global.index-url", "https://mirror.example/simple")
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("apt-get install -y python3 libgomp1", "`apt-get install -y python3 libgomp1` needs a container engine"),
        ("make install", "`make install` needs a container engine"),
        ("pip install a>=1", "> needs a shell: put the requirement in quotes"),
        ("pip install a | cat", "| needs a shell"),
        ("pip install $(cat x)", "$(…) needs a shell"),
        ("pip uninstall a", "of pip only install and config set are, not uninstall"),
        ("pip install -e .", "-e binds the environment to a directory"),
        ("pip install --target /x a", "--target installs outside of the environment"),
        ("rm -rf /usr", "`rm -rf /usr` needs a container engine"),
        ("X=1 pip install a", "set X=1 with ENV instead"),
    ],
)
def test_other_run_commands_are_refused_by_name(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(UnsupportedInstruction) as refused:
        pip(tmp_path, f"RUN {line}")
    assert str(refused.value).startswith(f"{tmp_path}/Dockerfile:2: RUN {line} is not supported: ")
    assert why in str(refused.value)
