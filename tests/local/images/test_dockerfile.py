import pytest

from paddle_operator.local.images.dockerfile import (
    DockerfileError,
    Instruction,
    expand_word,
    parse_dockerfile,
    split_words,
)

USER_GUIDE = """FROM ubuntu:18.04

RUN apt update && \\
    apt install -y python3 python3-dev python3-pip

RUN python3 -m pip install paddlepaddle==2.0.0 -i https://mirror.example/pypi/simple

## add user files

ADD wide_and_deep /wide_and_deep

WORKDIR /wide_and_deep

ENTRYPOINT ["python3", "train.py"]
"""


def test_user_guide_dockerfile() -> None:
    assert [(instruction.line, str(instruction)) for instruction in parse_dockerfile(USER_GUIDE)] == [
        (1, "FROM ubuntu:18.04"),
        (3, "RUN apt update && apt install -y python3 python3-dev python3-pip"),
        (6, "RUN python3 -m pip install paddlepaddle==2.0.0 -i https://mirror.example/pypi/simple"),
        (10, "ADD wide_and_deep /wide_and_deep"),
        (12, "WORKDIR /wide_and_deep"),
        (14, 'ENTRYPOINT ["python3", "train.py"]'),
    ]


def test_comments_in_continued_lines_are_dropped() -> None:
    text = "FROM a\nRUN one \\\n  # why\n\n  && two\n"
    assert parse_dockerfile(text)[1] == Instruction(2, "RUN", "one && two")


def test_keywords_ignore_case_and_flags_are_split_off() -> None:
    _, copy = parse_dockerfile("from a\ncopy --chown=1:1 --chmod=755 x /y\n")
    assert (copy.keyword, copy.value, copy.flags) == ("COPY", "x /y", {"chown": "1:1", "chmod": "755"})


def test_escape_directive_counts_only_at_the_head() -> None:
    assert str(parse_dockerfile("# escape=`\nFROM a\nRUN one `\n two\n")[1]) == "RUN one two"
    assert str(parse_dockerfile("# by me\n# escape=`\nFROM a\nRUN one \\\n two\n")[1]) == "RUN one two"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "FROM is missing"),
        ("RUN x\n", 1, "FROM is missing"),
        ("FROM a\nINSTALL b\n", 2, "unknown instruction INSTALL"),
        ("FROM a\n\nWORKDIR\n", 3, "WORKDIR has no arguments"),
        ("FROM a\nRUN <<EOF\nx\nEOF\n", 2, "here-document"),
    ],
)
def test_invalid_dockerfile_names_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DockerfileError, match=message) as refused:
        parse_dockerfile(text)
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
def test_exec_form_and_shell_form(text: str, command: tuple[str, ...]) -> None:
    assert parse_dockerfile(f"FROM a\n{text}\n")[1].command == command


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
def test_variables_and_quotes(text: str, result: str) -> None:
    assert expand_word(text, {"A": "1", "E": ""}).split() == result.split()


def test_shell_operators_are_split_outside_quotes() -> None:
    assert split_words("a&&b 'c && d' ; \"e>f\"", {}, operators=True) == ["a", "&&", "b", "c && d", ";", "e>f"]
    assert split_words("a && b", {}) == ["a", "&&", "b"]
