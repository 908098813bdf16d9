"""What does a RUN line ask for, as far as a virtual environment can give it? pip's work; what only brings Python itself
is satisfied by the environment; all else needs a container engine.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from paddle_operator.local.images.dockerfile import Operator, words
from paddle_operator.local.images.image_config import CannotObey, Run

_PIP = re.compile(r"(?:.*/)?pip(?:3(?:\.\d+)?)?")
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
# Packages of Debian's that bring nothing beyond what the environment has.
_PYTHON_PACKAGE = re.compile(
    r"python(?:3(?:\.\d+)?)?(?:-(?:pip|dev|setuptools|venv|wheel|distutils|minimal))?(?:=.*)?"
    r"|python-is-python3|python3-full|ca-certificates(?:=.*)?"
)
_CACHES = re.compile(r"(?:/root|~)/\.cache(?:/.*)?|/var/lib/apt/lists(?:/.*)?|/var/cache/.*|/tmp/.*")
_WITHOUT_MEANING = {"--no-cache-dir", "--user", "--break-system-packages", "--no-input"}
_JOINED = re.compile(r"(--(?:requirement|constraint|find-links))=(.+)|(-[rcf])(.+)")
_EDITABLE = ("-e", "--editable")


@dataclass(frozen=True)
class PipCommand:
    """One call of pip: `arguments` without pip's own name; paths among them are the image's."""

    run: Run
    arguments: tuple[str, ...]


def pip_commands(run: Run) -> Iterator[PipCommand]:
    """Raises CannotObey."""
    for command in _simple_commands(run):
        if re.fullmatch(r"[A-Za-z_]\w*=.*", command[0]):
            raise CannotObey(run.origin, f"cannot be obeyed: set {command[0]} with ENV instead")
        arguments = _pip_arguments(command)
        if arguments is not None:
            if cleaned := _obeyed(run, arguments):
                yield PipCommand(run, cleaned)
        elif not _satisfied(command):
            raise CannotObey(
                run.origin,
                f"cannot be obeyed: `{' '.join(command)}` needs a container engine, local mode runs only `pip install`",
            )


def _simple_commands(run: Run) -> Iterator[list[str]]:
    """The parts of a line between `&&` and `;`."""
    instruction = run.origin.instruction
    if listed := instruction.list_form:
        yield list(listed)
        return
    if "$(" in instruction.value:
        raise CannotObey(run.origin, "cannot be obeyed: $(…) needs a shell")
    command: list[str] = []
    for word in words(instruction.value, run.variables, operators=True):
        if not isinstance(word, Operator):
            command.append(word)
            continue
        if word not in ("&&", ";"):
            hint = ": put the requirement in quotes" if word in "<>" else ""
            raise CannotObey(run.origin, f"cannot be obeyed: {word} needs a shell{hint}")
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


def _obeyed(run: Run, arguments: list[str]) -> tuple[str, ...]:
    """What is left to be done of a call of pip; nothing where only its cache is cleaned."""
    kept = [word for argument in arguments if argument not in _WITHOUT_MEANING for word in _apart(argument)]
    verb = next((argument for argument in kept if not argument.startswith("-")), "")
    if verb == "cache":
        return ()
    if verb == "config" and "set" in kept:
        at = kept.index("config")
        scope = [argument for argument in kept if argument not in ("--user", "--global", "--site")]
        return (*scope[: at + 1], "--site", *scope[at + 1 :])  # into the environment, not into the user's home
    if verb != "install":
        raise CannotObey(run.origin, f"cannot be obeyed: of pip only install and config set are, not {verb or 'that'}")
    if editable := next((argument for argument in kept if argument.startswith(_EDITABLE)), None):
        raise CannotObey(run.origin, f"cannot be obeyed: {editable} ties the environment to a folder; leave it away")
    if target := next((argument for argument in kept if re.match(r"(-t|--target|--prefix|--root)\b", argument)), None):
        raise CannotObey(run.origin, f"cannot be obeyed: {target} installs outside of the environment; leave it away")
    return tuple(kept)


def _apart(argument: str) -> list[str]:
    """`-rfile` and `--requirement=file` as an option and a path."""
    joined = _JOINED.fullmatch(argument)
    return [part for part in joined.groups() if part] if joined else [argument]


def _satisfied(command: list[str]) -> bool:
    """Whether the environment is what the command would bring, or whether it only cleans up."""
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
    if name == "ln":  # `python` beside `python3`: the environment has both
        return all(_PYTHON.fullmatch(path) for path in named)
    return name in ("true", ":", "set", "ldconfig")
