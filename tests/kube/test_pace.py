"""A busy stream is read now and then, a calm one at once."""

import asyncio
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest

from paddle_operator.kube.pace import FEW, WINDOW_SECONDS, Pace


class Protocol:
    def __init__(self) -> None:
        self.deeds: list[str] = []

    def pause_reading(self) -> None:
        self.deeds.append("pause")

    def resume_reading(self) -> None:
        self.deeds.append("resume")


def a_reply(protocol: Protocol | None) -> aiohttp.ClientResponse:
    connection = SimpleNamespace(protocol=protocol) if protocol else None
    return cast("aiohttp.ClientResponse", SimpleNamespace(connection=connection))


async def test_a_few_changes_are_not_waited_for() -> None:
    protocol = Protocol()
    pace = Pace(a_reply(protocol))
    for _ in range(FEW):
        await pace.rest(1)
    assert protocol.deeds == []


async def test_after_many_the_stream_rests_for_what_is_left_of_the_window() -> None:
    protocol, began_at = Protocol(), asyncio.get_running_loop().time()
    pace = Pace(a_reply(protocol))
    await pace.rest(FEW)
    await pace.rest(1)
    assert protocol.deeds == ["pause", "resume"]
    assert asyncio.get_running_loop().time() - began_at >= WINDOW_SECONDS * 0.9
    await pace.rest(FEW)  # a window of its own
    assert len(protocol.deeds) == 2


async def test_a_stream_that_the_server_has_ended_is_not_waited_for() -> None:
    await Pace(a_reply(None)).rest(FEW + 1)


async def test_who_gives_up_while_the_stream_rests_leaves_it_readable() -> None:
    protocol = Protocol()
    resting = asyncio.ensure_future(Pace(a_reply(protocol)).rest(FEW + 1))
    await asyncio.sleep(0)
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting
    assert protocol.deeds == ["pause", "resume"]
