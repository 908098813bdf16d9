"""A busy watch is read less often, an idle one at once."""

import asyncio
from typing import cast

import pytest

from paddle_operator.kube import watch_throttle as module
from paddle_operator.kube.http_connection import HTTPResponse
from paddle_operator.kube.watch_throttle import (
    BULK_READ_BYTES,
    LONG_WINDOW_SECONDS,
    MAX_UNTHROTTLED_CHANGES,
    WINDOW_SECONDS,
    WatchThrottle,
)

MANY = round(MAX_UNTHROTTLED_CHANGES * LONG_WINDOW_SECONDS / WINDOW_SECONDS) + 1  # for a long window


class Stream:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


def throttle_of(stream: Stream) -> WatchThrottle:
    return WatchThrottle(cast("HTTPResponse", stream))


async def test_few_changes_are_not_throttled() -> None:
    stream = Stream()
    throttle = throttle_of(stream)
    for _ in range(MAX_UNTHROTTLED_CHANGES):
        await throttle.wait(1)
    assert stream.calls == []


async def test_busy_watch_waits_for_the_rest_of_the_window() -> None:
    stream, began_at = Stream(), asyncio.get_running_loop().time()
    throttle = throttle_of(stream)
    await throttle.wait(MAX_UNTHROTTLED_CHANGES)
    await throttle.wait(1)
    assert stream.calls == ["pause", "resume"]
    assert asyncio.get_running_loop().time() - began_at >= WINDOW_SECONDS * 0.9
    await throttle.wait(MAX_UNTHROTTLED_CHANGES)  # a window of its own
    assert len(stream.calls) == 2


async def test_cancelled_wait_resumes_reading() -> None:
    stream = Stream()
    waiting = asyncio.ensure_future(throttle_of(stream).wait(MAX_UNTHROTTLED_CHANGES + 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert stream.calls == ["pause", "resume"]


async def test_long_busy_watch_gets_long_windows_until_it_is_calm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LONG_WINDOW_AFTER_SECONDS", 1.5 * WINDOW_SECONDS)
    stream, clock = Stream(), asyncio.get_running_loop().time
    throttle = throttle_of(stream)
    for _ in range(4):
        await throttle.wait(MAX_UNTHROTTLED_CHANGES + 1)
    began_at = clock()
    await throttle.wait(MANY)
    assert clock() - began_at >= 0.9 * LONG_WINDOW_SECONDS
    await asyncio.sleep(1.1 * LONG_WINDOW_SECONDS)
    await throttle.wait(1)  # hardly anything in all that time
    began_at = clock()
    await throttle.wait(MANY)
    assert clock() - began_at < 0.9 * LONG_WINDOW_SECONDS
    assert stream.calls[-2:] == ["pause", "resume"]


async def test_burst_after_idleness_gets_a_short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONG_WINDOW_AFTER_SECONDS", WINDOW_SECONDS)
    throttle, clock = throttle_of(Stream()), asyncio.get_running_loop().time
    await asyncio.sleep(4 * WINDOW_SECONDS)
    await throttle.wait(MAX_UNTHROTTLED_CHANGES + 1)
    began_at = clock()
    await throttle.wait(MANY)
    assert clock() - began_at < 0.9 * LONG_WINDOW_SECONDS


async def test_bulk_reads_are_not_delayed_but_counted() -> None:
    stream = Stream()
    throttle = throttle_of(stream)
    await throttle.wait(100, BULK_READ_BYTES)
    assert stream.calls == []
    await throttle.wait(1, 10)
    assert stream.calls == ["pause", "resume"]
