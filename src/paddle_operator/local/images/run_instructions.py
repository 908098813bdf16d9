"""Which pip commands does a RUN line contain?

Commands that only install Python itself are no-ops in a virtual environment; all others need a container engine.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from paddle_operator.local.images.dockerfile import Operator, split_words
from paddle_operator.local.images.image_config import Run, UnsupportedInstruction

_PIP = re.compile(r"(?:.*/)?pip(?:3(?:\.\d+)?)?")
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
# Debian packages whose content the virtual environment already has.
_PYTHON_PACKAGE = re.compile(
    r"python(?:3(?:\.\d+)?)?(?:-(?:pip|dev|setuptools|venv|wheel|distutils|minimal))?(?:=.*)?"
    r"|python-is-python3|python3-full|ca-certificates(?:=.*)?"
)
_CACHES = re.compile(r"(?:/root|~)/\.cache(?:/.*)?|/var/lib/apt/lists(?:/.*)?|/var/cache/.*|/tmp/.*")
_IGNORED_OPTIONS = {"--no-cache-dir", "--user", "--break-system-packages", "--no-input"}
_JOINED = re.compile(r"(--(?:requirement|constraint|find-links))=(.+)|(-[rcf])(.+)")
_EDITABLE = ("-e", "--editable")


@dataclass(frozen=True)
class PipCommand:
    """One call of pip; `arguments` start after its name, and paths in them are the image's."""

    run: Run
    arguments: tuple[str, ...]


def pip_commands(run: Run) -> Iterator[PipCommand]:
    """The pip commands of a RUN line, in order. Raises UnsupportedInstruction."""
    for command in _simple_commands(run):
        if re.fullmatch(r"[A-Za-z_]\w*=.*", command[0]):
            raise UnsupportedInstruction(run.origin, f"is not supported: set {command[0]} with ENV instead")
        arguments = _pip_arguments(command)
        if arguments is not None:
            if cleaned := _supported_arguments(run, arguments):
                yield PipCommand(run, cleaned)
        elif not _is_no_op(command):
            raise UnsupportedInstruction(
                run.origin,
                f"is not supported: `{' '.join(command)}` needs a container engine, local mode runs only `pip install`",
            )


def _simple_commands(run: Run) -> Iterator[list[str]]:
    """The commands of a line, split at `&&` and `;`."""
    instruction = run.origin.instruction
    if listed := instruction.exec_form:
        yield list(listed)
        return
    if "$(" in instruction.value:
        raise UnsupportedInstruction(run.origin, "is not supported: $(…) needs a shell")
    command: list[str] = []
    for word in split_words(instruction.value, run.variables, operators=True):
        if not isinstance(word, Operator):
            command.append(word)
            continue
        if word not in ("&&", ";"):
            hint = ": put the requirement in quotes" if word in "<>" else ""
            raise UnsupportedInstruction(run.origin, f"is not supported: {word} needs a shell{hint}")
        if command:
            yield command
        command = []
    if command:
        yield command


def _pip_arguments(command: list[str]) -> list[str] | None:
    if _PIP.fullmatch(command[0]):
        return command[1:]
    if _PYTHON.fullmatch(command[0]) and command[1:3] == ["-m", "pip"]:
        return command[3:]
    return None


def _supported_arguments(run: Run, arguments: list[str]) -> tuple[str, ...]:
    """The arguments to run pip with; none if the command only cleans its cache."""
    words = [word for argument in arguments if argument not in _IGNORED_OPTIONS for word in _split_option(argument)]
    verb = next((argument for argument in words if not argument.startswith("-")), "")
    if verb == "cache":
        return ()
    if verb == "config" and "set" in words:
        at = words.index("config")
        scope = [argument for argument in words if argument not in ("--user", "--global", "--site")]
        return (*scope[: at + 1], "--site", *scope[at + 1 :])  # written to the environment, not to the user's home
    if verb != "install":
        raise UnsupportedInstruction(
            run.origin, f"is not supported: of pip only install and config set are, not {verb or 'this'}"
        )
    if editable := next((argument for argument in words if argument.startswith(_EDITABLE)), None):
        raise UnsupportedInstruction(
            run.origin, f"is not supported: {editable} binds the environment to a directory; remove it"
        )
    if target := next((argument for argument in words if re.match(r"(-t|--target|--prefix|--root)\b", argument)), None):
        raise UnsupportedInstruction(
            run.origin, f"is not supported: {target} installs outside of the environment; remove it"
        )
    return tuple(words)


def _split_option(argument: str) -> list[str]:
    """Split `-rfile` and `--requirement=file` into option and path."""
    joined = _JOINED.fullmatch(argument)
    return [part for part in joined.groups() if part] if joined else [argument]


def _is_no_op(command: list[str]) -> bool:
    """Whether the environment already has what the command would install, or the command only cleans up."""
    name, *arguments = command
    name = posixpath.basename(name)
    named = [argument for argument in arguments if not argument.startswith("-")]
    if name in ("apt", "apt-get"):
        verb, *packages = named or [""]
        if verb in ("update", "clean", "autoclean", "autoremove", "upgrade"):
            return True
        return verb == "install" and all(_PYTHON_PACKAGE.fullmatch(package) for package in packages)
    if name == "rm":
        return all(_CACHES.fullmatch(path) for path in named)
    if name == "ln":  # `python` and `python3`: the environment has both
        return all(_PYTHON.fullmatch(path) for path in named)
    return name in ("true", ":", "set", "ldconfig")
