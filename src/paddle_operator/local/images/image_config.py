"""What does a Dockerfile describe, without building it? Files, variables, a command and RUN lines.

layers.py copies the files and run_instructions.py interprets the RUN lines.
"""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddle_operator.local.cri import DEFAULT_PATH
from paddle_operator.local.images.dockerfile import (
    IGNORED_KEYWORDS,
    DockerfileError,
    Instruction,
    expand_word,
    parse_dockerfile,
    split_words,
)


@dataclass(frozen=True)
class InstructionLocation:
    """Where an instruction stands, for error messages."""

    dockerfile: Path
    instruction: Instruction

    def __str__(self) -> str:
        return f"{self.dockerfile}:{self.instruction.line}: {self.instruction}"


class UnsupportedInstruction(Exception):
    """An instruction that local mode does not support; str() is its location, its text and why."""

    def __init__(self, origin: InstructionLocation, why: str) -> None:
        super().__init__(f"{origin} {why}")


@dataclass(frozen=True)
class Copy:
    origin: InstructionLocation
    context: Path
    sources: tuple[str, ...]
    target: str  # absolute; ends with a slash if it must be a directory
    mode: int | None = None
    unpacks_archives: bool = False


@dataclass(frozen=True)
class Run:
    origin: InstructionLocation
    directory: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class ImageConfig:
    base: str  # the outermost base image, which has no Dockerfile here
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    copies: tuple[Copy, ...] = ()
    runs: tuple[Run, ...] = ()
    directories: tuple[str, ...] = ()  # created by WORKDIR
    warnings: tuple[str, ...] = ()  # a message for each instruction that is ignored


ResolveBase = Callable[[str], ImageConfig | None]
"""The config of the image that a FROM names; None if it has no Dockerfile here."""


def read_image_config(dockerfile: Path, build_arguments: Mapping[str, str], resolve_base: ResolveBase) -> ImageConfig:
    """The config of the last stage. Raises UnsupportedInstruction, DockerfileError, OSError and UnicodeDecodeError."""
    return _ConfigBuilder(dockerfile, build_arguments, resolve_base).build()


class _ConfigBuilder:
    def __init__(self, dockerfile: Path, build_arguments: Mapping[str, str], resolve_base: ResolveBase) -> None:
        self._dockerfile, self._build_arguments, self._resolve_base = dockerfile, build_arguments, resolve_base
        self._global_arguments: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._stages: dict[str, ImageConfig] = {}
        self._stage = ""
        self._config: ImageConfig | None = None
        self._stage_has_cmd = False

    def build(self) -> ImageConfig:
        for instruction in parse_dockerfile(self._dockerfile.read_text(encoding="utf-8")):
            self._read(instruction)
        assert self._config is not None
        return self._config

    def _read(self, instruction: Instruction) -> None:
        keyword = instruction.keyword
        if keyword == "FROM":
            self._from(instruction)
        elif keyword == "ARG":
            self._argument(instruction)
        elif self._config is None:
            raise DockerfileError(instruction.line, f"{keyword} must not come before FROM")
        elif keyword in IGNORED_KEYWORDS:
            warning = f"{self._dockerfile.name}:{instruction.line}: {keyword} is ignored"
            self._update(
                warnings=(*self._config.warnings, warning) if keyword in ("USER", "VOLUME") else self._config.warnings
            )
        elif handler := {
            "RUN": self._run,
            "COPY": self._copy,
            "ADD": self._copy,
            "ENV": self._environment,
            "WORKDIR": self._working_directory,
            "ENTRYPOINT": self._entrypoint,
            "CMD": self._cmd,
        }.get(keyword):
            handler(instruction, self._config)
        else:
            raise UnsupportedInstruction(
                self._origin(instruction), f"is not supported: {keyword} needs a container engine"
            )
        if self._config and self._stage:
            self._stages[self._stage] = self._config

    def _from(self, instruction: Instruction) -> None:
        name, *stage_clause = split_words(instruction.value, self._global_arguments)
        if stage_clause and not (len(stage_clause) == 2 and stage_clause[0].upper() == "AS"):
            raise DockerfileError(instruction.line, "FROM takes an image, optionally with AS and a name")
        self._config = self._stages.get(name.lower()) or self._resolve_base(name) or ImageConfig(name)
        self._stage = stage_clause[1].lower() if stage_clause else ""
        self._arguments, self._stage_has_cmd = {}, False

    def _argument(self, instruction: Instruction) -> None:
        for text in _split_pairs(instruction.value):
            name, has_default, default = text.partition("=")
            variables = self._variables() if self._config else self._global_arguments
            value = self._build_arguments.get(
                name, expand_word(default, variables) if has_default else self._global_arguments.get(name)
            )
            if value is not None:
                (self._arguments if self._config else self._global_arguments)[name] = value

    def _environment(self, instruction: Instruction, config: ImageConfig) -> None:
        variables, environment = self._variables(), dict(config.environment)
        first, *_ = instruction.value.split(maxsplit=1)
        if "=" not in first:  # the old form: ENV NAME VALUE
            name, _, value = instruction.value.partition(" ")
            environment[name] = expand_word(value.strip(), variables)
        else:
            for text in _split_pairs(instruction.value):
                name, _, value = text.partition("=")
                environment[name] = expand_word(value, variables)
        self._update(environment=environment)

    def _working_directory(self, instruction: Instruction, config: ImageConfig) -> None:
        directory = self._absolute(expand_word(instruction.value, self._variables()))
        self._update(working_directory=directory, directories=(*config.directories, directory))

    def _copy(self, instruction: Instruction, config: ImageConfig) -> None:
        origin, flags = self._origin(instruction), instruction.flags
        if "from" in flags:
            raise UnsupportedInstruction(
                origin, "is not supported: only files of its own directory can be copied, not --from an image"
            )
        if unknown := set(flags) - {"chown", "chmod", "link"}:
            raise UnsupportedInstruction(origin, f"is not supported: unknown flag --{min(unknown)}")
        arguments = instruction.exec_form or split_words(instruction.value, self._variables())
        if len(arguments) < 2:
            raise DockerfileError(instruction.line, f"{instruction.keyword} takes sources and a target")
        *sources, target = arguments
        if remote := next((source for source in sources if "://" in source or source.startswith("git@")), None):
            raise UnsupportedInstruction(origin, f"is not supported: {remote} is not a file of its own directory")
        into_directory = target.endswith(("/", "/.")) or target == "." or len(sources) > 1
        path = self._absolute(target).rstrip("/") + ("/" if into_directory else "")
        mode = int(flags["chmod"], 8) if flags.get("chmod", "").isdigit() else None
        copy = Copy(origin, self._dockerfile.parent, tuple(sources), path or "/", mode, instruction.keyword == "ADD")
        self._update(copies=(*config.copies, copy))

    def _run(self, instruction: Instruction, config: ImageConfig) -> None:
        run = Run(self._origin(instruction), config.working_directory, self._variables())
        self._update(runs=(*config.runs, run))

    def _entrypoint(self, instruction: Instruction, config: ImageConfig) -> None:
        # An ENTRYPOINT resets the CMD of the base image, not that of its own stage.
        self._update(entrypoint=instruction.command, command=config.command if self._stage_has_cmd else ())

    def _cmd(self, instruction: Instruction, _config: ImageConfig) -> None:
        self._stage_has_cmd = True
        self._update(command=instruction.command)

    def _variables(self) -> dict[str, str]:
        return {"PATH": DEFAULT_PATH, **self._arguments, **(self._config.environment if self._config else {})}

    def _absolute(self, path: str) -> str:
        assert self._config is not None
        return posixpath.normpath(posixpath.join(self._config.working_directory, path))

    def _origin(self, instruction: Instruction) -> InstructionLocation:
        return InstructionLocation(self._dockerfile, instruction)

    def _update(self, **changes: object) -> None:
        assert self._config is not None
        self._config = replace(self._config, **changes)  # type: ignore[arg-type]  # replace() checks the names itself


def _split_pairs(text: str) -> list[str]:
    """`A=1 B="two words"` split at spaces; quotes and variables are kept."""
    parts, quote, part = list[str](), "", ""
    escaped = False
    for char in text:
        if char.isspace() and not quote and not escaped:
            parts, part = [*parts, part] if part else parts, ""
            continue
        if char in "\"'" and not escaped and quote in ("", char):
            quote = "" if quote else char
        escaped = char == "\\" and not escaped
        part += char
    return [*parts, part] if part else parts
