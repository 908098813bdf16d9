"""One line per fact, as text or JSON: a constant sentence, its fields, and always the object that it is about.

`with about(key):` names the object once; every line from inside, libraries' lines included, carries it.
"""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

import msgspec

_about: ContextVar[str] = ContextVar("about", default="")
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = (str, int, float, bool, type(None), list, dict)  # as JSON has them; a Key is a tuple to JSON, and text to us


@contextmanager
def about(subject: object) -> Iterator[None]:
    token = _about.set(str(subject))
    try:
        yield
    finally:
        _about.reset(token)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What the line says beside its sentence; a field of its own named `key` wins over the surrounding object."""
    subject = _about.get()
    fields: dict[str, object] = {"key": subject} if subject else {}
    fields |= {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
    return fields


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        line |= {name: value if type(value) in _PLAIN else str(value) for name, value in _fields(record).items()}
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except (TypeError, ValueError):  # half a surrogate, as a file's name may have: an odd line is better than none
            return msgspec.json.encode({name: _sound(str(value)) for name, value in line.items()}).decode()


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_quoted(str(value))}" for name, value in _fields(record).items())
        line = f"{_moment(record)} {record.levelname:<7} {' '.join(record.getMessage().split())}{fields}"
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def _quoted(value: str) -> str:
    """A value as it stands, or as JSON has it where its end could not be seen: nobody's words make a second line."""
    plain = value and not any(character.isspace() or character in '"=' for character in value)
    return value if plain else msgspec.json.encode(_sound(value)).decode()


def _sound(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def start_logging(formatter: logging.Formatter, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send every line of this process to the stream (stderr), replacing what was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)


def debug_or_back(usual: int) -> str:
    """Let every line through, or again only those of the usual level; returns the level's name. While somebody looks
    for a cause the process goes on: what led to it would be gone after a restart.
    """
    root = logging.getLogger()
    root.setLevel(usual if root.level == logging.DEBUG else logging.DEBUG)
    return logging.getLevelName(root.level).lower()
