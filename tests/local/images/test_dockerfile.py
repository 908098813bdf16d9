import pytest

from paddle_operator.local.images.dockerfile import DockerfileError, Instruction, expanded, instructions, words

USER_GUIDE = """FROM ubuntu:18.04

RUN apt update && \\
    apt install -y python3 python3-dev python3-pip

RUN python3 -m pip install paddlepaddle==2.0.0 -i https://mirror.example/pypi/simple

## add user files

ADD wide_and_deep /wide_and_deep

WORKDIR /wide_and_deep

ENTRYPOINT ["python3", "train.py"]
"""


def test_the_user_guides_dockerfile_is_read_line_by_line() -> None:
    assert [(instruction.line, str(instruction)) for instruction in instructions(USER_GUIDE)] == [
        (1, "FROM ubuntu:18.04"),
        (3, "RUN apt update && apt install -y python3 python3-dev python3-pip"),
        (6, "RUN python3 -m pip install paddlepaddle==2.0.0 -i https://mirror.example/pypi/simple"),
        (10, "ADD wide_and_deep /wide_and_deep"),
        (12, "WORKDIR /wide_and_deep"),
        (14, 'ENTRYPOINT ["python3", "train.py"]'),
    ]


def test_comments_and_empty_lines_within_a_continued_line_vanish() -> None:
    text = "FROM a\nRUN one \\\n  # why\n\n  && two\n"
    assert instructions(text)[1] == Instruction(2, "RUN", "one && two")


def test_words_are_known_in_any_case_and_flags_stand_apart() -> None:
    _, copy = instructions("from a\ncopy --chown=1:1 --chmod=755 x /y\n")
    assert (copy.word, copy.value, copy.flags) == ("COPY", "x /y", {"chown": "1:1", "chmod": "755"})


def test_another_escape_sign_can_be_chosen_at_the_head_only() -> None:
    assert str(instructions("# escape=`\nFROM a\nRUN one `\n two\n")[1]) == "RUN one two"
    assert str(instructions("# by me\n# escape=`\nFROM a\nRUN one \\\n two\n")[1]) == "RUN one two"


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", 1, "no FROM"),
        ("RUN x\n", 1, "no FROM"),
        ("FROM a\nINSTALL b\n", 2, "INSTALL is no instruction"),
        ("FROM a\n\nWORKDIR\n", 3, "WORKDIR says nothing"),
        ("FROM a\nRUN <<EOF\nx\nEOF\n", 2, "here-document"),
    ],
)
def test_what_is_no_dockerfile_is_refused_with_its_line(text: str, line: int, sentence: str) -> None:
    with pytest.raises(DockerfileError, match=sentence) as refused:
        instructions(text)
    assert refused.value.line == line


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('CMD ["python", "-m", "x"]', ("python", "-m", "x")),
        ("CMD python -m x $Y", ("/bin/sh", "-c", "python -m x $Y")),
        ("CMD ['python']", ("/bin/sh", "-c", "['python']")),
        ("CMD []", ()),
    ],
)
def test_a_command_is_a_list_or_a_shells(text: str, command: tuple[str, ...]) -> None:
    assert instructions(f"FROM a\n{text}\n")[1].command == command


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$A/${A}x/$B-", "1/1x/-"),
        ("${B:-two} ${A:-two} ${E:-two} ${E-two}", "two 1 two "),
        ("${A:+set} ${B:+set} ${E:+set} ${E+set}", "set   set"),
        ("'$A' \"$A\" \\$A", "$A 1 $A"),
        ('"a \\"b\\""', 'a "b"'),
        ("$ 5$", "$ 5$"),
        ("${B:-$A}", "1"),
    ],
)
def test_variables_and_quotes_are_read_as_docker_does(text: str, result: str) -> None:
    assert expanded(text, {"A": "1", "E": ""}).split() == result.split()


def test_a_shells_operators_are_kept_apart_outside_of_quotes_only() -> None:
    assert words("a&&b 'c && d' ; \"e>f\"", {}, operators=True) == ["a", "&&", "b", "c && d", ";", "e>f"]
    assert words("a && b", {}) == ["a", "&&", "b"]
