"""Nothing of ours spins: pauses double, are bounded, differ, and shrink only after a calm time."""

import asyncio
import random
from datetime import timedelta

import pytest

from paddle_operator.kube.backoff import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    RESET_AFTER_SECONDS,
    Backoff,
    exponential,
)
from testbed.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def pause_of(backoff: Backoff, clock: FakeClock) -> float:
    """How long the clock must run until the next try may begin."""
    began_at = clock.monotonic()
    ended_at: list[float] = []
    paused = asyncio.ensure_future(backoff.pause())
    paused.add_done_callback(lambda _: ended_at.append(clock.monotonic()))
    while not ended_at:
        await clock.advance(0.1)
    return ended_at[0] - began_at


async def failed_at_once(backoff: Backoff, clock: FakeClock, times: int) -> list[float]:
    pauses = []
    for _ in range(times):
        backoff.begin()
        pauses.append(await pause_of(backoff, clock))
    return pauses


async def test_pauses_double_up_to_a_limit(clock: FakeClock) -> None:
    longest = Backoff(clock, jitter=lambda: 1.0)
    pauses = await failed_at_once(longest, clock, 9)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10])
    shortest = Backoff(clock, jitter=lambda: 0.0)
    assert await failed_at_once(shortest, clock, 9) == pytest.approx([pause / 2 for pause in pauses])


async def test_pauses_of_a_crowd_differ_between_the_half_and_the_whole(clock: FakeClock) -> None:
    random.seed(1)
    pauses = [(await failed_at_once(Backoff(clock), clock, 1))[0] for _ in range(50)]
    assert len(set(pauses)) > 40
    assert all(FIRST_PAUSE_SECONDS / 2 <= round(pause, 6) <= FIRST_PAUSE_SECONDS for pause in pauses)


async def test_after_a_thousand_failures_the_limit_still_holds(clock: FakeClock) -> None:
    backoff = Backoff(clock, jitter=lambda: 1.0)
    backoff._tries = 5000  # 2.0 to this power is no float any more
    assert await failed_at_once(backoff, clock, 1) == pytest.approx([MAX_PAUSE_SECONDS])


async def test_long_try_resets_the_backoff(clock: FakeClock) -> None:
    backoff = Backoff(clock, jitter=lambda: 1.0)
    await failed_at_once(backoff, clock, 5)
    backoff.begin()
    await clock.advance(RESET_AFTER_SECONDS)
    assert await pause_of(backoff, clock) == 0
    assert await failed_at_once(backoff, clock, 2) == pytest.approx([0.2, 0.4])


async def test_a_try_that_began_well_and_was_cut_soon_changes_nothing(clock: FakeClock) -> None:
    backoff = Backoff(clock, jitter=lambda: 1.0)
    await failed_at_once(backoff, clock, 5)
    backoff.begin()
    await clock.advance(RESET_AFTER_SECONDS - 1)
    assert await pause_of(backoff, clock) == pytest.approx(6.4)


def test_exponential_doubles_up_to_the_limit() -> None:
    assert [exponential(number, 10.0, 300.0) for number in (1, 2, 3, 6, 5000)] == [10, 20, 40, 300, 300]
    assert exponential(3, timedelta(seconds=10), timedelta(minutes=6)) == timedelta(seconds=40)
    assert exponential(5000, timedelta(seconds=10), timedelta(minutes=6)) == timedelta(minutes=6)
