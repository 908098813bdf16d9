"""Log lines as text or JSON: a constant phrase, its fields, and the object that it is about.

`with about(key):` names the object once; every line logged inside carries it, those of libraries included.
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
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_JSON_TYPES = (str, int, float, bool, type(None), list, dict)  # exactly: a Key is a tuple, but logged as text


@contextmanager
def about(subject: object) -> Iterator[None]:
    token = _about.set(str(subject))
    try:
        yield
    finally:
        _about.reset(token)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a record; its own `key` wins over the object of `about`."""
    subject = _about.get()
    fields: dict[str, object] = {"key": subject} if subject else {}
    fields |= {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
    return fields


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        line |= {name: value if type(value) in _JSON_TYPES else str(value) for name, value in _fields(record).items()}
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except (TypeError, ValueError):  # half a surrogate, as in a file name
            return msgspec.json.encode({name: _encodable(str(value)) for name, value in line.items()}).decode()


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_quoted(str(value))}" for name, value in _fields(record).items())
        line = f"{_timestamp(record)} {record.levelname:<7} {' '.join(record.getMessage().split())}{fields}"
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def _quoted(value: str) -> str:
    """The value, quoted as JSON if it has spaces, quotes or line breaks: no value may start a second line."""
    plain = value and not any(character.isspace() or character in '"=' for character in value)
    return value if plain else msgspec.json.encode(_encodable(value)).decode()


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def start_logging(formatter: logging.Formatter, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Log every line of this process to the stream (stderr), replacing earlier settings."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)


def toggle_debug(usual_level: int) -> str:
    """Switch between debug and the usual level without a restart, which would lose the state to debug.

    Returns the name of the new level.
    """
    root = logging.getLogger()
    root.setLevel(usual_level if root.level == logging.DEBUG else logging.DEBUG)
    return logging.getLevelName(root.level).lower()
