"""What a container has printed comes back as it was, in parts, with instants, across rotation."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from paddle_operator.local import log_writer
from paddle_operator.local.container_logs import LogError, LogFiles
from paddle_operator.local.log_writer import LogWriter
from testbed.clock import FakeClock

UID = "u1"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def logs(tmp_path: Path, clock: FakeClock) -> Iterator[LogFiles]:
    made = LogFiles(tmp_path, clock)
    yield made
    for writer in list(made._writers.values()):
        made.close(writer)


def writer(logs: LogFiles, *printed: bytes, restart: int = 0) -> LogWriter:
    made = logs.open(UID, "main", restart)
    for data in printed:
        made.write(data)
    return made


async def read(logs: LogFiles, **wish: Any) -> bytes:
    return b"".join([piece async for piece in stream(logs, **wish)])


def stream(logs: LogFiles, **wish: Any) -> AsyncIterator[bytes]:
    return logs.stream("ml", "mnist-0", UID, **({"container": "main"} | wish))


async def test_a_log_reads_as_it_was_printed(logs: LogFiles) -> None:
    logs.close(writer(logs, b"one\ntw", b"o\n\nthr", b"ee\n"))
    assert await read(logs) == b"one\ntwo\n\nthree\n"


async def test_a_last_line_without_an_end_is_kept(logs: LogFiles) -> None:
    logs.close(writer(logs, b"one\nhalf"))
    assert await read(logs) == b"one\nhalf\n"


async def test_a_line_that_never_ends_is_kept_in_parts_and_read_as_one(logs: LogFiles) -> None:
    made = writer(logs)
    for _ in range(100):
        made.write(b"x" * 1000)
    assert len(made._rest) <= log_writer.LONGEST_LINE
    logs.close(made)
    assert await read(logs) == b"x" * 100_000 + b"\n"


async def test_a_long_line_that_comes_at_once_is_read_as_one(logs: LogFiles) -> None:
    text = b"one\n" + b"y" * (3 * log_writer.LONGEST_LINE + 5) + b"\n" + b"z" * log_writer.LONGEST_LINE + b"\n"
    logs.close(writer(logs, text))
    assert await read(logs) == text


async def test_each_line_has_its_instant(logs: LogFiles, clock: FakeClock) -> None:
    made = writer(logs, b"one\n")
    await clock.advance(1.5)
    made.write(b"two\n")
    assert await read(logs, timestamps=True) == (
        b"2026-01-01T00:00:00.000000000Z one\n2026-01-01T00:00:01.500000000Z two\n"
    )


async def test_only_lines_since_an_instant(logs: LogFiles, clock: FakeClock) -> None:
    made = writer(logs, b"one\n")
    await clock.advance(10)
    made.write(b"two\n")
    assert await read(logs, since=clock.now() - timedelta(seconds=5)) == b"two\n"


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 10, 29, 30, 31, 1000])
async def test_the_last_lines_are_found_across_rotated_files(
    logs: LogFiles, tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddle_operator.local.container_logs.PIECE", 64)
    made = LogWriter(logs._pods / UID / "main" / "0.log", FakeClock(), largest=400)
    lines = [b"line %d\n" % number for number in range(30)]
    for line in lines:
        made.write(line)
    made.close()
    assert await read(logs, tail_lines=tail) == b"".join(lines[max(30 - tail, 0) :])


async def test_of_a_log_that_grows_the_oldest_files_are_dropped(logs: LogFiles) -> None:
    made = LogWriter(logs._pods / UID / "main" / "0.log", FakeClock(), largest=1000)
    for number in range(1000):
        made.write(b"line %d\n" % number)
    made.close()
    kept = sorted((logs._pods / UID / "main").iterdir())
    assert len(kept) == 5
    assert sum(each.stat().st_size for each in kept) <= 5 * 1000
    assert (await read(logs)).endswith(b"line 998\nline 999\n")


async def test_no_more_bytes_than_asked_for(logs: LogFiles) -> None:
    logs.close(writer(logs, b"one\ntwo\n"))
    assert await read(logs, limit_bytes=5) == b"one\nt"


async def test_the_run_before_this_one_can_be_read_and_older_ones_are_gone(logs: LogFiles, tmp_path: Path) -> None:
    for restart, text in enumerate((b"first\n", b"second\n", b"third\n")):
        logs.close(writer(logs, text, restart=restart))
    assert await read(logs) == b"third\n"
    assert await read(logs, previous=True) == b"second\n"
    assert sorted(each.name for each in (tmp_path / "pods" / UID / "main").iterdir()) == ["1.log", "2.log"]


async def test_a_follower_hears_of_each_line_and_goes_when_the_container_has_ended(logs: LogFiles) -> None:
    made = writer(logs, b"before\n")
    following = stream(logs, follow=True)
    assert await anext(following) == b"before\n"
    coming = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    made.write(b"after\nhal")
    assert await coming == b"after\n"
    logs.close(made)
    assert await anext(following) == b"hal\n"
    with pytest.raises(StopAsyncIteration):
        await anext(following)


async def test_a_follower_misses_nothing_when_files_are_rotated_under_it(logs: LogFiles) -> None:
    made = LogWriter(logs._pods / UID / "main" / "0.log", FakeClock(), largest=200)
    logs._writers[made.path] = made
    lines = [b"line %d\n" % number for number in range(200)]

    async def write() -> None:
        for line in lines:
            made.write(line)
            await asyncio.sleep(0)
        logs.close(made)

    writing = asyncio.ensure_future(write())
    assert await read(logs, follow=True) == b"".join(lines)
    await writing


async def test_two_followers_of_one_log_both_read_all_of_it(logs: LogFiles) -> None:
    made = writer(logs)
    readers = [asyncio.ensure_future(read(logs, follow=True)) for _ in range(2)]
    for number in range(10):
        made.write(b"%d\n" % number)
        await asyncio.sleep(0)
    logs.close(made)
    expected = b"".join(b"%d\n" % number for number in range(10))
    assert await asyncio.gather(*readers) == [expected, expected]


async def test_a_disk_that_is_full_costs_lines_and_not_the_program(logs: LogFiles) -> None:
    made = writer(logs, b"kept\n")
    made._file.close()
    made._file = io.FileIO("/dev/full", "a")
    for _ in range(3):
        made.write(b"lost\n")
    assert "No space left on device" in made.problem
    logs.close(made)
    assert await read(logs) == b"kept\n"


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ({"container": "absent"}, "container absent is not valid for pod mnist-0"),
        ({"container": ""}, r"a container name must be specified for pod mnist-0, choose one of: \[main other\]"),
        ({"container": "other"}, 'container "other" in pod "mnist-0" is waiting to start'),
        ({"previous": True}, 'previous terminated container "main" in pod "mnist-0" not found'),
    ],
)
async def test_a_log_that_is_not_there_is_a_sentence(logs: LogFiles, wish: dict[str, Any], sentence: str) -> None:
    logs.expect(UID, ("main", "other"))
    logs.close(writer(logs, b"one\n"))
    with pytest.raises(LogError, match=sentence):
        await read(logs, **wish)


async def test_the_logs_of_a_pod_of_an_earlier_process_are_still_there(logs: LogFiles, tmp_path: Path) -> None:
    logs.close(writer(logs, b"one\n"))
    later = LogFiles(tmp_path)
    assert await read(later, container="", follow=True) == b"one\n"
