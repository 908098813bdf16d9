"""A busy stream is read now and then, a calm one at once."""

import asyncio
from typing import cast

import pytest

from paddle_operator.kube.channel import Reply
from paddle_operator.kube.pace import FEW, WINDOW_SECONDS, Pace


class Stream:
    def __init__(self) -> None:
        self.deeds: list[str] = []

    def hold(self) -> None:
        self.deeds.append("hold")

    def go_on(self) -> None:
        self.deeds.append("go on")


def a_pace(stream: Stream) -> Pace:
    return Pace(cast("Reply", stream))


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
