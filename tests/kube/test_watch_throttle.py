"""A busy stream is read now and then, a calm one at once."""

import asyncio
from typing import cast

import pytest

from paddle_operator.kube import watch_throttle as pacing
from paddle_operator.kube.http_connection import Reply
from paddle_operator.kube.watch_throttle import FEW, LONG_WINDOW_SECONDS, MUCH, WINDOW_SECONDS, WatchThrottle

MANY = round(FEW * LONG_WINDOW_SECONDS / WINDOW_SECONDS) + 1  # for a long window


class Stream:
    def __init__(self) -> None:
        self.deeds: list[str] = []

    def hold(self) -> None:
        self.deeds.append("hold")

    def resume_reading(self) -> None:
        self.deeds.append("go on")


def a_pace(stream: Stream) -> WatchThrottle:
    return WatchThrottle(cast("Reply", stream))


async def test_a_few_changes_are_not_waited_for() -> None:
    stream = Stream()
    pace = a_pace(stream)
    for _ in range(FEW):
        await pace.rest(1)
    assert stream.deeds == []


async def test_after_many_the_stream_rests_for_what_is_left_of_the_window() -> None:
    stream, began_at = Stream(), asyncio.get_running_loop().time()
    pace = a_pace(stream)
    await pace.rest(FEW)
    await pace.rest(1)
    assert stream.deeds == ["hold", "go on"]
    assert asyncio.get_running_loop().time() - began_at >= WINDOW_SECONDS * 0.9
    await pace.rest(FEW)  # a window of its own
    assert len(stream.deeds) == 2


async def test_who_gives_up_while_the_stream_rests_leaves_it_readable() -> None:
    stream = Stream()
    resting = asyncio.ensure_future(a_pace(stream).rest(FEW + 1))
    await asyncio.sleep(0)
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting
    assert stream.deeds == ["hold", "go on"]


async def test_a_stream_that_is_busy_for_long_rests_for_longer_until_a_calm_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "LASTING_SECONDS", 1.5 * WINDOW_SECONDS)
    stream, clock = Stream(), asyncio.get_running_loop().time
    pace = a_pace(stream)
    for _ in range(4):
        await pace.rest(FEW + 1)
    began_at = clock()
    await pace.rest(MANY)
    assert clock() - began_at >= 0.9 * LONG_WINDOW_SECONDS
    await asyncio.sleep(1.1 * LONG_WINDOW_SECONDS)
    await pace.rest(1)  # hardly anything in all that time
    began_at = clock()
    await pace.rest(MANY)
    assert clock() - began_at < 0.9 * LONG_WINDOW_SECONDS
    assert stream.deeds[-2:] == ["hold", "go on"]


async def test_a_burst_after_a_long_silence_is_no_stream_that_is_busy_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "LASTING_SECONDS", WINDOW_SECONDS)
    pace, clock = a_pace(Stream()), asyncio.get_running_loop().time
    await asyncio.sleep(4 * WINDOW_SECONDS)
    await pace.rest(FEW + 1)
    began_at = clock()
    await pace.rest(MANY)
    assert clock() - began_at < 0.9 * LONG_WINDOW_SECONDS


async def test_more_that_is_on_its_way_is_not_held_up_and_counts_once_it_is_here() -> None:
    stream = Stream()
    pace = a_pace(stream)
    await pace.rest(100, MUCH)
    assert stream.deeds == []
    await pace.rest(1, 10)
    assert stream.deeds == ["hold", "go on"]
