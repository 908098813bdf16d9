"""What does a Dockerfile say, line by line? Its instructions with their places, and Docker's way with words: quotes,
escapes and variables (https://docs.docker.com/reference/dockerfile).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

NOTED = frozenset(("USER", "EXPOSE", "LABEL", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER"))
WORDS = NOTED | {"FROM", "ARG", "RUN", "COPY", "ADD", "ENV", "WORKDIR", "ENTRYPOINT", "CMD", "ONBUILD", "SHELL"}
OPERATORS = ("&&", "||", "|", "&", ";", "<", ">", "(", ")", "`")

_DIRECTIVE = re.compile(r"#\s*([a-z]+)\s*=\s*(\S+)\s*", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+])([^}]*))?\}")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")


class DockerfileError(Exception):
    """str() is what is wrong with a line; `line` counts from 1."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line


@dataclass(frozen=True)
class Instruction:
    line: int
    word: str
    value: str  # what follows the word and its flags, continuation lines joined
    flags: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.word} {self.value}"

    @property
    def list_form(self) -> tuple[str, ...] | None:
        """The words of `["python3", "train.py"]`; None for the shell form."""
        try:
            words = json.loads(self.value)
        except ValueError:
            return None
        return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None

    @property
    def command(self) -> tuple[str, ...]:
        """What ENTRYPOINT, CMD and RUN start."""
        return self.list_form or ("/bin/sh", "-c", self.value) if self.list_form != () else ()


class Operator(str):
    """What a shell does not read as a word: `&&`, `;`, `|`."""

    __slots__ = ()


def instructions(text: str) -> list[Instruction]:
    """Raises DockerfileError."""
    found = [_instruction(line, joined) for line, joined in _joined_lines(text)]
    if not any(instruction.word == "FROM" for instruction in found):
        raise DockerfileError(1, "no FROM is there: a Dockerfile starts with the image that it is built on")
    return found


def _instruction(line: int, text: str) -> Instruction:
    word, _, value = text.partition(" ")
    word, value = word.upper(), value.strip()
    if word not in WORDS:
        raise DockerfileError(line, f"{word} is no instruction of a Dockerfile")
    flags: dict[str, str] = {}
    while word != "HEALTHCHECK" and (flag := _FLAG.match(value)):
        flags[flag[1]] = flag[2] or ""
        value = value[flag.end() :]
    if not value:
        raise DockerfileError(line, f"{word} says nothing")
    if word in ("RUN", "COPY", "ADD") and re.match(r"<<-?[\"']?\w", value):
        raise DockerfileError(line, f"{word} with a here-document is not understood: write it as lines ending with \\")
    return Instruction(line, word, value, flags)


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction's first line number and text; comments and empty lines between continued lines vanish."""
    escape, began, parts, at_head = "\\", 0, list[str](), True
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
        began = began or number
        goes_on = stripped.endswith(escape)
        parts.append(stripped[:-1].strip() if goes_on else stripped)
        if not goes_on:
            yield began, " ".join(filter(None, parts))
            began, parts = 0, []
    if parts:
        yield began, " ".join(filter(None, parts))


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """One word as Docker reads it: quotes taken off, variables in their places."""
    return " ".join(words(text, variables))


def words(text: str, variables: Mapping[str, str], operators: bool = False) -> list[str]:
    """The words of a line; with `operators` those of a shell are kept apart. An undefined variable is empty."""
    return list(_Reader(text, variables, OPERATORS if operators else ()).words())


class _Reader:
    def __init__(self, text: str, variables: Mapping[str, str], operators: tuple[str, ...]) -> None:
        self._text, self._variables, self._operators = text, variables, operators
        self._at = 0

    def words(self) -> Iterator[str]:
        word, begun = "", False
        while self._at < len(self._text):
            sign = self._text[self._at]
            operator = next((one for one in self._operators if self._text.startswith(one, self._at)), None)
            if operator or sign.isspace():
                if begun:
                    yield word
                word, begun = "", False
                self._at += len(operator or sign)
                if operator:
                    yield Operator(operator)
                continue
            word, begun = word + self._piece(sign), True
        if begun:
            yield word

    def _piece(self, sign: str) -> str:
        if sign == "'":
            return self._until_quote(sign)
        if sign == '"':
            return self._within_double_quotes()
        if sign == "$":
            return self._variable()
        self._at += 1
        if sign == "\\" and self._at < len(self._text):
            self._at += 1
            return self._text[self._at - 1]
        return sign

    def _until_quote(self, quote: str) -> str:
        end = self._text.find(quote, self._at + 1)
        end = len(self._text) if end < 0 else end
        inner, self._at = self._text[self._at + 1 : end], end + 1
        return inner

    def _within_double_quotes(self) -> str:
        self._at += 1
        inner = ""
        while self._at < len(self._text) and self._text[self._at] != '"':
            if self._text[self._at] == "$":
                inner += self._variable()
                continue
            if self._text[self._at] == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "$", "\\"):
                self._at += 1
            inner += self._text[self._at]
            self._at += 1
        self._at += 1
        return inner

    def _variable(self) -> str:
        self._at += 1
        if braced := _BRACED.match(self._text, self._at):
            self._at = braced.end()
            name, sign, other = braced.groups()
            value = self._variables.get(name)
            there = bool(value) if (sign or "").startswith(":") else value is not None
            if sign and (sign[-1] == "-") != there:
                return expanded(other, self._variables)
            return "" if sign and sign[-1] == "+" else value or ""
        if name := _NAME.match(self._text, self._at):
            self._at = name.end()
            return self._variables.get(name[0], "")
        return "$"
