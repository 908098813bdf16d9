"""What does a Dockerfile come to where nothing is built? Its files, its variables, its command, and its RUN lines to be
looked at by who can do something with them.
"""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddle_operator.local.cri import DEFAULT_PATH
from paddle_operator.local.images.dockerfile import NOTED, DockerfileError, Instruction, expanded, instructions, words


@dataclass(frozen=True)
class Origin:
    """A line that a person can be sent to."""

    dockerfile: Path
    instruction: Instruction

    def __str__(self) -> str:
        return f"{self.dockerfile}:{self.instruction.line}: {self.instruction}"


class CannotObey(Exception):
    """A line that local mode cannot do; str() is where it stands, what it says and why."""

    def __init__(self, origin: Origin, why: str) -> None:
        super().__init__(f"{origin} {why}")


@dataclass(frozen=True)
class Copy:
    origin: Origin
    context: Path
    sources: tuple[str, ...]
    target: str  # absolute; with a slash at its end where it must be a folder
    mode: int | None = None
    unpacks: bool = False


@dataclass(frozen=True)
class Run:
    origin: Origin
    directory: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Recipe:
    base: str  # the image at the bottom, which nobody here knows
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    runs: tuple[Run, ...] = ()
    folders: tuple[str, ...] = ()  # those that WORKDIR makes
    notes: tuple[str, ...] = ()  # what is read and not followed, a sentence each


Known = Callable[[str], Recipe | None]
"""The recipe of an image that a FROM names; None where it is not one of ours."""


def recipe(dockerfile: Path, build_arguments: Mapping[str, str], known: Known) -> Recipe:
    """What the last stage comes to. Raises CannotObey, DockerfileError, OSError and UnicodeDecodeError."""
    return _Reading(dockerfile, build_arguments, known).result()


class _Reading:
    def __init__(self, dockerfile: Path, build_arguments: Mapping[str, str], known: Known) -> None:
        self._dockerfile, self._given, self._known = dockerfile, build_arguments, known
        self._before_from: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._stages: dict[str, Recipe] = {}
        self._stage = ""
        self._now: Recipe | None = None
        self._command_here = False

    def result(self) -> Recipe:
        for instruction in instructions(self._dockerfile.read_text(encoding="utf-8")):
            self._read(instruction)
        assert self._now is not None
        return self._now

    def _read(self, instruction: Instruction) -> None:
        word = instruction.word
        if word == "FROM":
            self._from(instruction)
        elif word == "ARG":
            self._argument(instruction)
        elif self._now is None:
            raise DockerfileError(instruction.line, f"{word} stands before FROM")
        elif word in NOTED:
            note = f"{self._dockerfile.name}:{instruction.line}: {word} is read and not followed"
            self._change(notes=(*self._now.notes, note) if word in ("USER", "VOLUME") else self._now.notes)
        elif step := {
            "RUN": self._run,
            "COPY": self._copy,
            "ADD": self._copy,
            "ENV": self._environment,
            "WORKDIR": self._working_directory,
            "ENTRYPOINT": self._entrypoint,
            "CMD": self._cmd,
        }.get(word):
            step(instruction, self._now)
        else:
            raise CannotObey(self._origin(instruction), f"cannot be obeyed: {word} needs a container engine")
        if self._now and self._stage:
            self._stages[self._stage] = self._now

    def _from(self, instruction: Instruction) -> None:
        name, *rest = words(instruction.value, self._before_from)
        if rest and not (len(rest) == 2 and rest[0].upper() == "AS"):
            raise DockerfileError(instruction.line, "FROM takes an image, and AS with a name")
        self._now = self._stages.get(name.lower()) or self._known(name) or Recipe(name)
        self._stage = rest[1].lower() if rest else ""
        self._arguments, self._command_here = {}, False

    def _argument(self, instruction: Instruction) -> None:
        for text in _pairs_as_written(instruction.value):
            name, given, default = text.partition("=")
            variables = self._variables() if self._now else self._before_from
            value = self._given.get(name, expanded(default, variables) if given else self._before_from.get(name))
            if value is not None:
                (self._arguments if self._now else self._before_from)[name] = value

    def _environment(self, instruction: Instruction, now: Recipe) -> None:
        variables, changed = self._variables(), dict(now.environment)
        first, *_ = instruction.value.split(maxsplit=1)
        if "=" not in first:  # the old form: ENV NAME all the rest
            name, _, value = instruction.value.partition(" ")
            changed[name] = expanded(value.strip(), variables)
        else:
            for text in _pairs_as_written(instruction.value):
                name, _, value = text.partition("=")
                changed[name] = expanded(value, variables)
        self._change(environment=changed)

    def _working_directory(self, instruction: Instruction, now: Recipe) -> None:
        folder = self._absolute(expanded(instruction.value, self._variables()))
        self._change(working_directory=folder, folders=(*now.folders, folder))

    def _copy(self, instruction: Instruction, now: Recipe) -> None:
        origin, flags = self._origin(instruction), instruction.flags
        if "from" in flags:
            raise CannotObey(
                origin, "cannot be obeyed: only files of its own folder can be copied, not --from an image"
            )
        if unknown := set(flags) - {"chown", "chmod", "link"}:
            raise CannotObey(origin, f"cannot be obeyed: --{min(unknown)} is not understood")
        given = instruction.list_form or words(instruction.value, self._variables())
        if len(given) < 2:
            raise DockerfileError(instruction.line, f"{instruction.word} takes what to copy and where to")
        *sources, target = given
        if remote := next((source for source in sources if "://" in source or source.startswith("git@")), None):
            raise CannotObey(origin, f"cannot be obeyed: {remote} is not a file of its own folder")
        into_folder = target.endswith(("/", "/.")) or target == "." or len(sources) > 1
        path = self._absolute(target).rstrip("/") + ("/" if into_folder else "")
        mode = int(flags["chmod"], 8) if flags.get("chmod", "").isdigit() else None
        copy = Copy(origin, self._dockerfile.parent, tuple(sources), path or "/", mode, instruction.word == "ADD")
        self._change(copies=(*now.copies, copy))

    def _run(self, instruction: Instruction, now: Recipe) -> None:
        run = Run(self._origin(instruction), now.working_directory, self._variables())
        self._change(runs=(*now.runs, run))

    def _entrypoint(self, instruction: Instruction, now: Recipe) -> None:
        # An ENTRYPOINT takes away the CMD of the image below, not one of its own stage.
        self._change(entrypoint=instruction.command, command=now.command if self._command_here else ())

    def _cmd(self, instruction: Instruction, _now: Recipe) -> None:
        self._command_here = True
        self._change(command=instruction.command)

    def _variables(self) -> dict[str, str]:
        return {"PATH": DEFAULT_PATH, **self._arguments, **(self._now.environment if self._now else {})}

    def _absolute(self, path: str) -> str:
        assert self._now is not None
        return posixpath.normpath(posixpath.join(self._now.working_directory, path))

    def _origin(self, instruction: Instruction) -> Origin:
        return Origin(self._dockerfile, instruction)

    def _change(self, **changed: object) -> None:
        assert self._now is not None
        self._now = replace(self._now, **changed)  # type: ignore[arg-type]  # replace checks the names itself


def _pairs_as_written(text: str) -> list[str]:
    """`A=1 B="two words"` in its parts, with their quotes and variables left as they are."""
    parts, quote, part = list[str](), "", ""
    escaped = False
    for sign in text:
        if sign.isspace() and not quote and not escaped:
            parts, part = [*parts, part] if part else parts, ""
            continue
        if sign in "\"'" and not escaped and quote in ("", sign):
            quote = "" if quote else sign
        escaped = sign == "\\" and not escaped
        part += sign
    return [*parts, part] if part else parts
