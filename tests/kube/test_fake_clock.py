import asyncio
from datetime import timedelta

import pytest

from paddle_operator.kube.clock import Clock
from testbed.clock import FakeClock


async def test_each_period_of_a_loop_passes_at_its_own_instant() -> None:
    clock = FakeClock()
    started_at, seen = clock.monotonic(), []

    async def tick(clock: Clock) -> None:
        while True:
            await clock.sleep(2)
            seen.append(clock.monotonic() - started_at)

    task = asyncio.create_task(tick(clock))
    await clock.advance(7)
    assert seen == [2, 4, 6]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.pending == 0


async def test_timers_fire_in_order_unless_cancelled() -> None:
    clock, fired = FakeClock(), list[str]()
    clock.call_later(2, lambda: fired.append("late"))
    clock.call_later(1, lambda: fired.append("first"))
    clock.call_later(1, lambda: fired.append("second"))
    clock.call_later(1, lambda: fired.append("never")).cancel()
    await clock.advance(1)
    assert fired == ["first", "second"]
    await clock.advance(1)
    assert fired == ["first", "second", "late"]


async def test_wall_time_moves_along_and_jumps_alone() -> None:
    clock, fired = FakeClock(), list[str]()
    wall, monotonic = clock.now(), clock.monotonic()
    clock.call_later(10, lambda: fired.append("ten"))
    await clock.advance(5)
    assert clock.now() - wall == timedelta(seconds=5)
    clock.step_wall_clock(-3600)
    clock.step_wall_clock(7200)
    await clock.advance(0)
    assert clock.now() - wall == timedelta(seconds=3605)
    assert clock.monotonic() - monotonic == 5
    assert fired == []
