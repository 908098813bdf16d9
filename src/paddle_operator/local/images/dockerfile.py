"""Parses a Dockerfile: its instructions with their lines, and words with Docker's quotes, escapes and variables.

The reference is https://docs.docker.com/reference/dockerfile.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

IGNORED_KEYWORDS = frozenset(("USER", "EXPOSE", "LABEL", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER"))
KEYWORDS = IGNORED_KEYWORDS | {
    "FROM",
    "ARG",
    "RUN",
    "COPY",
    "ADD",
    "ENV",
    "WORKDIR",
    "ENTRYPOINT",
    "CMD",
    "ONBUILD",
    "SHELL",
}
OPERATORS = ("&&", "||", "|", "&", ";", "<", ">", "(", ")", "`")

_DIRECTIVE = re.compile(r"#\s*([a-z]+)\s*=\s*(\S+)\s*", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+])([^}]*))?\}")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")


class DockerfileError(Exception):
    """A line is invalid: str() is the reason; `line` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Instruction:
    line: int
    keyword: str
    value: str  # what follows the keyword and its flags; continuation lines are joined
    flags: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.keyword} {self.value}"

    @property
    def exec_form(self) -> tuple[str, ...] | None:
        """The words of `["python3", "train.py"]`; None for the shell form."""
        try:
            words = json.loads(self.value)
        except ValueError:
            return None
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None

    @property
    def command(self) -> tuple[str, ...]:
        """The command line that ENTRYPOINT, CMD and RUN start."""
        return self.exec_form or ("/bin/sh", "-c", self.value) if self.exec_form != () else ()


class Operator(str):
    """A shell operator: `&&`, `;`, `|`."""

    __slots__ = ()


def parse_dockerfile(text: str) -> list[Instruction]:
    """Raises DockerfileError."""
    found = [_parse_instruction(line, joined) for line, joined in _join_lines(text)]
    if not any(instruction.keyword == "FROM" for instruction in found):
        raise DockerfileError(1, "FROM is missing: start the Dockerfile with FROM and its base image")
    return found


def _parse_instruction(line: int, text: str) -> Instruction:
    keyword, _, value = text.partition(" ")
    keyword, value = keyword.upper(), value.strip()
    if keyword not in KEYWORDS:
        raise DockerfileError(line, f"unknown instruction {keyword}")
    flags: dict[str, str] = {}
    while keyword != "HEALTHCHECK" and (flag := _FLAG.match(value)):
        flags[flag[1]] = flag[2] or ""
        value = value[flag.end() :]
    if not value:
        raise DockerfileError(line, f"{keyword} has no arguments")
    if keyword in ("RUN", "COPY", "ADD") and re.match(r"<<-?[\"']?\w", value):
        raise DockerfileError(
            line, f"{keyword} with a here-document is not supported: write it as lines ending with \\"
        )
    return Instruction(line, keyword, value, flags)


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction's first line number and text; comments and empty lines between continued lines are dropped."""
    escape, first_line, parts, at_head = "\\", 0, list[str](), True
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#"):
            directive = _DIRECTIVE.fullmatch(stripped) if at_head else None
            if directive and directive[1].lower() == "escape":
                escape = directive[2]
            at_head = at_head and directive is not None
            continue
        at_head = False
        if not stripped:
            continue
        first_line = first_line or number
        continues = stripped.endswith(escape)
        parts.append(stripped[:-1].strip() if continues else stripped)
        if not continues:
            yield first_line, " ".join(filter(None, parts))
            first_line, parts = 0, []
    if parts:
        yield first_line, " ".join(filter(None, parts))


def expand_word(text: str, variables: Mapping[str, str]) -> str:
    """One word as Docker reads it: without quotes, variables expanded."""
    return " ".join(split_words(text, variables))


def split_words(text: str, variables: Mapping[str, str], operators: bool = False) -> list[str]:
    """The words of a line; with `operators` a shell's operators are words, too. An undefined variable is empty."""
    return list(_WordLexer(text, variables, OPERATORS if operators else ()).words())


class _WordLexer:
    def __init__(self, text: str, variables: Mapping[str, str], operators: tuple[str, ...]) -> None:
        self._text, self._variables, self._operators = text, variables, operators
        self._position = 0

    def words(self) -> Iterator[str]:
        word, started = "", False
        while self._position < len(self._text):
            char = self._text[self._position]
            operator = next((one for one in self._operators if self._text.startswith(one, self._position)), None)
            if operator or char.isspace():
                if started:
                    yield word
                word, started = "", False
                self._position += len(operator or char)
                if operator:
                    yield Operator(operator)
                continue
            word, started = word + self._read_piece(char), True
        if started:
            yield word

    def _read_piece(self, char: str) -> str:
        if char == "'":
            return self._read_single_quoted(char)
        if char == '"':
            return self._read_double_quoted()
        if char == "$":
            return self._read_variable()
        self._position += 1
        if char == "\\" and self._position < len(self._text):
            self._position += 1
            return self._text[self._position - 1]
        return char

    def _read_single_quoted(self, quote: str) -> str:
        end = self._text.find(quote, self._position + 1)
        end = len(self._text) if end < 0 else end
        inner, self._position = self._text[self._position + 1 : end], end + 1
        return inner

    def _read_double_quoted(self) -> str:
        self._position += 1
        inner = ""
        while self._position < len(self._text) and self._text[self._position] != '"':
            if self._text[self._position] == "$":
                inner += self._read_variable()
                continue
            if self._text[self._position] == "\\" and self._text[self._position + 1 : self._position + 2] in (
                '"',
                "$",
                "\\",
            ):
                self._position += 1
            inner += self._text[self._position]
            self._position += 1
        self._position += 1
        return inner

    def _read_variable(self) -> str:
        self._position += 1
        if braced := _BRACED.match(self._text, self._position):
            self._position = braced.end()
            name, char, other = braced.groups()
            value = self._variables.get(name)
            is_set = bool(value) if (char or "").startswith(":") else value is not None
            if char and (char[-1] == "-") != is_set:
                return expand_word(other, self._variables)
            return "" if char and char[-1] == "+" else value or ""
        if name := _NAME.match(self._text, self._position):
            self._position = name.end()
            return self._variables.get(name[0], "")
        return "$"
