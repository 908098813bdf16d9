"""A controller's promises: every key gets its pass, a failure gets another, and one odd object stops nobody."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from paddle_operator.kube.controller import Controller, Reconcile
from paddle_operator.kube.errors import Conflict, Fenced, Status, Unreachable
from paddle_operator.kube.work_queue import FIRST_REQUEUE_SECONDS, Queue
from testbed.clock import FakeClock, run_ready_tasks


@asynccontextmanager
async def running(reconcile: Reconcile[str], clock: FakeClock, workers: int = 2) -> AsyncIterator[Queue[str]]:
    queue: Queue[str] = Queue("test", clock)
    task = asyncio.ensure_future(Controller("test", queue, reconcile, workers=workers, clock=clock).run())
    yield queue
    queue.close()
    await task


async def test_a_pass_that_names_an_instant_is_woken_then() -> None:
    clock, passes = FakeClock(), 0

    async def reconcile(key: str) -> datetime | None:
        nonlocal passes
        passes += 1
        return clock.now() + timedelta(minutes=5) if passes == 1 else None

    async with running(reconcile, clock) as queue:
        queue.add("a")
        await clock.advance(299)
        assert passes == 1
        await clock.advance(2)
        assert passes == 2
        await clock.advance(10_000)
    assert passes == 2


async def test_who_need_not_be_woken_any_more_is_not_remembered() -> None:
    """A job that is gone need not be kept in mind until the deadline that it had."""
    clock, answers, passes = FakeClock(), [timedelta(days=7), None], 0

    async def reconcile(key: str) -> datetime | None:
        nonlocal passes
        answer = answers[passes]
        passes += 1
        return clock.now() + answer if answer else None

    async with running(reconcile, clock) as queue:
        queue.add("a")
        await run_ready_tasks()
        assert passes == 1
        queue.add("a")
        await run_ready_tasks()
        assert passes == 2
        await clock.advance(8 * 86_400)
    assert passes == 2


async def test_change_during_a_reconcile_is_reconciled_again() -> None:
    clock, passes = FakeClock(), 0

    async def reconcile(key: str) -> datetime | None:
        nonlocal passes
        passes += 1
        if passes == 1:
            queue.add_after("a", 0.5)
        return None

    async with running(reconcile, clock) as queue:
        queue.add("a")
        await clock.advance(1)
    assert passes == 2


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (Unreachable("gone"), logging.WARNING),
        (Conflict("patch a", Status(409)), logging.DEBUG),
        (ZeroDivisionError("a defect"), logging.ERROR),
    ],
)
async def test_a_pass_that_fails_is_tried_again_and_said_once(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "paddle_operator")
    clock, passes = FakeClock(), 0

    async def reconcile(key: str) -> None:
        nonlocal passes
        passes += 1
        if passes == 1:
            raise error

    async with running(reconcile, clock) as queue:
        queue.add("a")
        await clock.advance(FIRST_REQUEUE_SECONDS / 2)
        assert passes == 1
        await clock.advance(FIRST_REQUEUE_SECONDS)
        assert passes == 2
    assert caplog.records[0].levelno == level


async def test_an_odd_object_does_not_hold_up_the_others() -> None:
    clock, seen = FakeClock(), []

    async def reconcile(key: str) -> None:
        seen.append(key)
        if key == "odd":
            raise RuntimeError("cannot make sense of it")

    async with running(reconcile, clock, workers=1) as queue:
        queue.add("odd")
        queue.add("even")
        await run_ready_tasks()
    assert seen == ["odd", "even"]


async def test_a_fenced_pass_is_not_tried_again() -> None:
    clock, passes = FakeClock(), 0

    async def reconcile(key: str) -> None:
        nonlocal passes
        passes += 1
        raise Fenced("not the leader")

    async with running(reconcile, clock) as queue:
        queue.add("a")
        await clock.advance(1000)
    assert passes == 1


async def test_closing_the_queue_lets_the_pass_in_hand_finish() -> None:
    clock, finished = FakeClock(), False

    async def reconcile(key: str) -> None:
        nonlocal finished
        await clock.sleep(5)
        finished = True

    async with running(reconcile, clock) as queue:
        queue.add("a")
        await run_ready_tasks()
        queue.close()
        await clock.advance(6)
    assert finished


async def test_two_keys_are_worked_on_at_once_and_one_key_never_twice() -> None:
    clock = FakeClock()
    in_hand: list[str] = []
    most = 0

    async def reconcile(key: str) -> None:
        nonlocal most
        assert key not in in_hand
        in_hand.append(key)
        most = max(most, len(in_hand))
        await clock.sleep(1)
        in_hand.remove(key)

    async with running(reconcile, clock, workers=3) as queue:
        for _ in range(3):
            queue.add("a")
            queue.add("b")
            await clock.advance(0.5)
        await clock.advance(5)
    assert most == 2
