"""A log line is one line, and says what it is about wherever it comes from."""

import asyncio
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from paddle_operator.kube.log_format import JsonLines, TextLines, about, start_logging
from paddle_operator.kube.objects import Key

log = logging.getLogger("paddle_operator.test")
library = logging.getLogger("somebody.elses.library")

JOB = Key("training", "mnist")


class Lines:
    """What has been written so far."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def json(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.text.splitlines()]


@pytest.fixture(autouse=True)
def lines() -> Iterator[Lines]:
    """The process's logging, put back as it was: pytest has handlers of its own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield Lines()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def as_json(lines: Lines) -> Lines:
    start_logging(JsonLines(), stream=lines.stream)
    return lines


@pytest.fixture
def as_text(lines: Lines) -> Lines:
    start_logging(TextLines(), stream=lines.stream)
    return lines


def test_a_json_line_has_the_sentence_its_fields_and_the_object(as_json: Lines) -> None:
    with about(JOB):
        log.info("made %d pods", 3, extra={"role": "worker", "seconds": 0.5, "names": ["a", "b"]})
    [line] = as_json.json
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "message": "made 3 pods",
        "logger": "paddle_operator.test",
        "key": "training/mnist",
        "role": "worker",
        "seconds": 0.5,
        "names": ["a", "b"],
    }


def test_a_text_line_has_the_same(as_text: Lines) -> None:
    with about(JOB):
        log.warning("made %d pods", 3, extra={"role": "worker", "why": 'the "old" ones are gone', "none": ""})
    time, _, rest = as_text.text.partition(" ")
    assert time.endswith("Z")
    assert rest == ('WARNING made 3 pods key=training/mnist role=worker why="the \\"old\\" ones are gone" none=""\n')


def test_outside_of_any_object_there_is_no_key(as_json: Lines) -> None:
    log.info("started")
    assert "key" not in as_json.json[0]


def test_a_line_about_another_object_says_so_itself(as_json: Lines) -> None:
    with about(JOB):
        log.info("saw a pod", extra={"key": Key("training", "mnist-worker-0")})
    assert as_json.json[0]["key"] == "training/mnist-worker-0"


def test_of_nested_objects_the_inner_one_counts_until_it_ends(as_json: Lines) -> None:
    def fail_inside() -> None:
        with about("inner"):
            log.info("in")
            raise ValueError

    with about("outer"):
        with pytest.raises(ValueError):
            fail_inside()
        log.info("out")
    log.info("gone")
    assert [line.get("key") for line in as_json.json] == ["inner", "outer", None]


async def test_tasks_at_the_same_time_keep_their_objects_apart(as_json: Lines) -> None:
    turn = asyncio.Barrier(3)

    async def work(name: str) -> None:
        with about(name):
            for step in range(3):
                await turn.wait()
                log.info("worked", extra={"by": name, "step": step})
                await asyncio.to_thread(library.info, "in a thread", extra={"by": name})

    await asyncio.gather(*map(work, "abc"))
    assert len(as_json.json) == 18
    assert all(line["key"] == line["by"] for line in as_json.json)


def test_a_librarys_line_carries_the_object_too(as_text: Lines) -> None:
    with about(JOB):
        library.error("could not connect")
    assert as_text.text.endswith("ERROR   could not connect key=training/mnist\n")


def test_a_warning_of_python_is_a_line_like_any_other(as_text: Lines) -> None:
    with about(JOB), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)  # once more: catch_warnings has undone it
        warnings.warn("do not do that", stacklevel=1)
        logging.captureWarnings(capture=False)
    assert as_text.text.count("\n") == 1
    assert "UserWarning: do not do that" in as_text.text
    assert as_text.text.endswith(" key=training/mnist\n")


def fail() -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        with about(JOB):
            log.exception("a pass failed")


def test_traceback_is_a_json_field_or_follows_the_text_line(lines: Lines) -> None:
    start_logging(JsonLines(), stream=lines.stream)
    fail()
    [line] = lines.json
    assert (line["level"], line["message"], line["key"]) == ("error", "a pass failed", "training/mnist")
    assert line["traceback"].startswith("Traceback")
    assert line["traceback"].endswith("RuntimeError: boom\n")
    start_logging(TextLines(), stream=lines.stream)
    fail()
    head, *trace = lines.text.splitlines()[1:]
    assert head.endswith("ERROR   a pass failed key=training/mnist")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "RuntimeError: boom")


def test_nobodys_words_can_begin_a_line_of_their_own(lines: Lines) -> None:
    forged = "bad\n2026-01-01T00:00:00.000Z INFO all is well"
    start_logging(TextLines(), stream=lines.stream)
    log.info("a pod said %s", forged, extra={"why": forged})
    start_logging(JsonLines(), stream=lines.stream)
    log.info("a pod said %s", forged, extra={"why": forged})
    text, json = lines.text.splitlines()
    assert 'why="bad\\n2026' in text
    assert msgspec.json.decode(json)["why"] == forged


@pytest.mark.parametrize("value", [b"bytes", object(), {1: object()}, "half a \udcff surrogate", float("nan"), JOB])
def test_no_value_costs_the_line(lines: Lines, value: object, capsys: pytest.CaptureFixture[str]) -> None:
    for formatter in (JsonLines(), TextLines()):
        start_logging(formatter, stream=lines.stream)
        log.info("odd", extra={"value": value})
    json, text = lines.text.splitlines()
    assert msgspec.json.decode(json)["message"] == "odd"
    assert " odd value=" in text
    assert capsys.readouterr().err == ""  # where logging tells of a line that it lost


def test_the_level_and_the_stream_are_the_callers(lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(TextLines(), logging.WARNING)
    log.info("quiet")
    log.warning("loud")
    assert lines.text == ""
    assert "loud" in capsys.readouterr().err
