"""Logs are read back as they were printed: in parts, with timestamps, across rotation."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.kube.objects import Key
from paddle_operator.local.container_logs import MAX_LOG_LINE_BYTES, LogError, LogFiles, LogWriter, PodLogOptions
from testbed.clock import FakeClock

UID = "u1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logs(tmp_path: Path, clock: FakeClock) -> Iterator[LogFiles]:
    files = LogFiles(tmp_path, clock)
    yield files
    for writer in list(files._writers.values()):
        files.close(writer)


def open_log(logs: LogFiles, *printed: bytes, restart: int = 0) -> LogWriter:
    writer = logs.open(UID, "main", restart)
    for data in printed:
        writer.write(data)
    return writer


async def read(logs: LogFiles, **options: Any) -> bytes:
    return b"".join([chunk async for chunk in stream(logs, **options)])


def stream(logs: LogFiles, **options: Any) -> AsyncIterator[bytes]:
    return logs.stream(Key("ml", "mnist-0"), UID, PodLogOptions(**({"container": "main"} | options)))


async def test_log_is_read_as_it_was_printed(logs: LogFiles) -> None:
    logs.close(open_log(logs, b"one\ntw", b"o\n\nthr", b"ee\n"))
    assert await read(logs) == b"one\ntwo\n\nthree\n"


async def test_last_line_without_newline_is_stored(logs: LogFiles) -> None:
    logs.close(open_log(logs, b"one\nhalf"))
    assert await read(logs) == b"one\nhalf\n"


async def test_endless_line_is_stored_in_parts_and_read_as_one(logs: LogFiles) -> None:
    writer = open_log(logs)
    for _ in range(100):
        writer.write(b"x" * 1000)
    assert len(writer._partial_line) <= MAX_LOG_LINE_BYTES
    logs.close(writer)
    assert await read(logs) == b"x" * 100_000 + b"\n"


async def test_long_line_in_one_write_is_read_as_one(logs: LogFiles) -> None:
    text = b"one\n" + b"y" * (3 * MAX_LOG_LINE_BYTES + 5) + b"\n" + b"z" * MAX_LOG_LINE_BYTES + b"\n"
    logs.close(open_log(logs, text))
    assert await read(logs) == text


async def test_timestamps_of_lines(logs: LogFiles, clock: FakeClock) -> None:
    writer = open_log(logs, b"one\n")
    await clock.advance(1.5)
    writer.write(b"two\n")
    assert await read(logs, timestamps=True) == (
        b"2026-01-01T00:00:00.000000000Z one\n2026-01-01T00:00:01.500000000Z two\n"
    )


async def test_since_time(logs: LogFiles, clock: FakeClock) -> None:
    writer = open_log(logs, b"one\n")
    await clock.advance(10)
    writer.write(b"two\n")
    assert await read(logs, since=clock.now() - timedelta(seconds=5)) == b"two\n"


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 10, 29, 30, 31, 1000])
async def test_tail_spans_rotated_files(logs: LogFiles, tail: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddle_operator.local.container_logs.READ_BYTES", 64)
    writer = LogWriter(logs._pods / UID / "main" / "0.log", FakeClock(), max_file_bytes=400)
    lines = [b"line %d\n" % number for number in range(30)]
    for line in lines:
        writer.write(line)
    writer.close()
    assert await read(logs, tail_lines=tail) == b"".join(lines[max(30 - tail, 0) :])


async def test_oldest_rotated_files_are_removed(logs: LogFiles) -> None:
    writer = LogWriter(logs._pods / UID / "main" / "0.log", FakeClock(), max_file_bytes=1000)
    for number in range(1000):
        writer.write(b"line %d\n" % number)
    writer.close()
    files = sorted((logs._pods / UID / "main").iterdir())
    assert len(files) == 5
    assert sum(each.stat().st_size for each in files) <= 5 * 1000
    assert (await read(logs)).endswith(b"line 998\nline 999\n")


async def test_limit_bytes(logs: LogFiles) -> None:
    logs.close(open_log(logs, b"one\ntwo\n"))
    assert await read(logs, limit_bytes=5) == b"one\nt"


async def test_previous_run_is_retained_and_older_runs_are_removed(logs: LogFiles, tmp_path: Path) -> None:
    for restart, text in enumerate((b"first\n", b"second\n", b"third\n")):
        logs.close(open_log(logs, text, restart=restart))
    assert await read(logs) == b"third\n"
    assert await read(logs, previous=True) == b"second\n"
    assert sorted(each.name for each in (tmp_path / "pods" / UID / "main").iterdir()) == ["1.log", "2.log"]


async def test_follow_yields_each_line_until_the_container_ends(logs: LogFiles) -> None:
    writer = open_log(logs, b"before\n")
    following = stream(logs, follow=True)
    assert await anext(following) == b"before\n"
    coming = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    writer.write(b"after\nhal")
    assert await coming == b"after\n"
    logs.close(writer)
    assert await anext(following) == b"hal\n"
    with pytest.raises(StopAsyncIteration):
        await anext(following)


async def test_follow_misses_nothing_across_rotation(logs: LogFiles) -> None:
    writer = LogWriter(logs._pods / UID / "main" / "0.log", FakeClock(), max_file_bytes=200)
    logs._writers[writer.path] = writer
    lines = [b"line %d\n" % number for number in range(200)]

    async def write() -> None:
        for line in lines:
            writer.write(line)
            await asyncio.sleep(0)
        logs.close(writer)

    writing = asyncio.ensure_future(write())
    assert await read(logs, follow=True) == b"".join(lines)
    await writing


async def test_two_followers_both_read_everything(logs: LogFiles) -> None:
    writer = open_log(logs)
    readers = [asyncio.ensure_future(read(logs, follow=True)) for _ in range(2)]
    for number in range(10):
        writer.write(b"%d\n" % number)
        await asyncio.sleep(0)
    logs.close(writer)
    expected = b"".join(b"%d\n" % number for number in range(10))
    assert await asyncio.gather(*readers) == [expected, expected]


async def test_full_disk_loses_lines_without_raising(logs: LogFiles) -> None:
    writer = open_log(logs, b"retained\n")
    writer._file.close()
    writer._file = io.FileIO("/dev/full", "a")
    for _ in range(3):
        writer.write(b"lost\n")
    assert "No space left on device" in writer.error
    logs.close(writer)
    assert await read(logs) == b"retained\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"container": "absent"}, "container absent is not valid for pod mnist-0"),
        ({"container": ""}, r"a container name must be specified for pod mnist-0, choose one of: \[main other\]"),
        ({"container": "other"}, 'container "other" in pod "mnist-0" is waiting to start'),
        ({"previous": True}, 'previous terminated container "main" in pod "mnist-0" not found'),
    ],
)
async def test_missing_log_raises_log_error(logs: LogFiles, options: dict[str, Any], message: str) -> None:
    logs.register(UID, ("main", "other"))
    logs.close(open_log(logs, b"one\n"))
    with pytest.raises(LogError, match=message):
        await read(logs, **options)


async def test_logs_of_an_earlier_process_can_be_read(logs: LogFiles, tmp_path: Path) -> None:
    logs.close(open_log(logs, b"one\n"))
    later = LogFiles(tmp_path)
    assert await read(later, container="", follow=True) == b"one\n"
