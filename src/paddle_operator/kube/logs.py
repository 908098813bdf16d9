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
        line |= _fields(record)
        if record.exc_info:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value!s}" for name, value in _fields(record).items())
        line = f"{_moment(record)} {record.levelname:<7} {record.getMessage()}{fields}"
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def start_logging(formatter: logging.Formatter, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send every line of this process to the stream (stderr), replacing what was set up before."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
