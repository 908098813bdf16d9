"""Does an OffsetClock fire exactly the timers that an advance makes due, and does a SlowClock slow all of its time?"""

import asyncio
from datetime import UTC, datetime, timedelta

from testbed.clock import OffsetClock, SlowClock, run_ready_tasks

HOUR = timedelta(hours=1)


async def test_advance_fires_due_timers_only() -> None:
    clock, hour, other = OffsetClock(), asyncio.Event(), asyncio.Event()
    clock.call_later(3600, hour.set)
    clock.call_later(7200, other.set)
    clock.call_later(60, other.set).cancel()
    sleeper = asyncio.create_task(clock.sleep(1800))
    clock.advance(timedelta(minutes=10))
    await run_ready_tasks()
    assert not hour.is_set()
    assert not sleeper.done()
    clock.advance(timedelta(minutes=50))
    await sleeper
    await hour.wait()
    assert not other.is_set()


async def test_advance_moves_both_clocks_forward_only() -> None:
    clock = OffsetClock(HOUR)
    since, real = clock.monotonic(), datetime.now(UTC)
    assert HOUR <= clock.now() - real < 2 * HOUR
    clock.advance(HOUR)
    clock.advance(-HOUR)
    assert 3600 <= clock.monotonic() - since < 7200
    then = clock.now() + HOUR
    clock.advance_to(then)
    clock.advance_to(then - HOUR)
    assert then <= clock.now() < then + HOUR


async def test_advance_to_returns_the_real_time_of_the_instant() -> None:
    clock, before = OffsetClock(), datetime.now(UTC)
    then = clock.now() + HOUR
    assert before <= clock.advance_to(then) <= datetime.now(UTC)
    assert clock.advance_to(then - HOUR) <= before - HOUR + timedelta(minutes=1)


async def test_slow_clock_scales_both_clocks() -> None:
    clock, real = SlowClock(1000), datetime.now(UTC)
    wall, since = clock.now(), clock.monotonic()
    await clock.sleep(0.0001)
    passed = datetime.now(UTC) - real
    assert passed >= timedelta(seconds=0.09)
    assert timedelta() < clock.now() - wall <= passed / 100
    assert 0.00009 <= clock.monotonic() - since <= passed.total_seconds() / 100
