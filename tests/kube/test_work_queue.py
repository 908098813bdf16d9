"""The queue's promises: a key waits once, is in one pair of hands, and is not lost."""

import asyncio

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paddle_operator.kube.work_queue import (
    FIRST_REQUEUE_SECONDS,
    MAX_REQUEUE_SECONDS,
    RETRIES_PER_SECOND,
    RETRY_BURST,
    Closed,
    Priority,
    Queue,
)
from testbed.clock import FakeClock


async def test_a_key_that_is_added_twice_is_given_once() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    queue.add("a")
    queue.add("a")
    assert await queue.take() == "a"
    assert len(queue) == 0


async def test_key_added_while_in_work_comes_exactly_once_more() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    queue.add("a")
    key = await queue.take()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0  # one pair of hands at a time
    queue.done(key)
    assert await queue.take() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_live_change_goes_before_what_a_relist_brought() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    for key in ("old-1", "old-2", "old-3"):
        queue.add(key, Priority.LOW)
    queue.add("new")
    queue.add("old-3")
    assert [await queue.take() for _ in range(4)] == ["new", "old-3", "old-1", "old-2"]


async def test_requeued_key_keeps_the_higher_priority() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    queue.add("a")
    key = await queue.take()
    queue.add("a", Priority.LOW)
    queue.add("a")
    queue.add("a", Priority.LOW)
    queue.add("patient", Priority.LOW)
    queue.done(key)
    assert await queue.take() == "a"


async def test_a_busy_cluster_does_not_starve_what_a_relist_brought() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    queue.add("patient", Priority.LOW)
    taken = []
    for number in range(20):
        queue.add(f"busy-{number}")
        queue.add(f"busier-{number}")
        taken.append(await queue.take())
    assert "patient" in taken


async def test_low_priority_never_takes_every_worker() -> None:
    queue: Queue[str] = Queue("test", FakeClock(), max_low_priority=1)
    for key in ("patient", "more-patient"):
        queue.add(key, Priority.LOW)
    assert await queue.take() == "patient"
    taker = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not taker.done()
    queue.add("hasty")
    assert await taker == "hasty"
    taker = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not taker.done()
    queue.done("patient")
    assert await taker == "more-patient"


async def test_low_priority_key_can_become_live() -> None:
    queue: Queue[str] = Queue("test", FakeClock(), max_low_priority=1)
    for key in ("patient", "b"):
        queue.add(key, Priority.LOW)
    assert await queue.take() == "patient"
    taker = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add("b")
    assert await asyncio.wait_for(taker, 60) == "b"


async def test_recurring_key_queues_behind_the_others() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    queue.add("greedy")
    queue.add("modest")
    assert await queue.take() == "greedy"
    queue.add("greedy")
    queue.done("greedy")
    assert await queue.take() == "modest"


async def test_short_delay_survives_cancel_add_after() -> None:
    clock = FakeClock()
    queue: Queue[str] = Queue("test", clock)
    queue.add_after("a", 100)
    await clock.advance(99)
    queue.add_after("a", 4)  # the deadline comes first, and serves it
    queue.cancel_add_after("a")  # there is no deadline any more
    await clock.advance(4)
    assert await asyncio.wait_for(queue.take(), 60) == "a"


async def test_of_two_delays_the_earlier_one_counts() -> None:
    clock = FakeClock()
    queue: Queue[str] = Queue("test", clock)
    queue.add_after("a", 60)
    queue.add_after("a", 5)
    queue.add_after("a", 30)
    await clock.advance(4.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await queue.take() == "a"
    queue.done("a")
    await clock.advance(100)
    assert len(queue) == 0


async def test_a_delay_that_is_over_already_is_no_delay() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    queue.add_after("a", -3)
    assert await queue.take() == "a"


async def test_retries_back_off_up_to_a_limit_until_forget() -> None:
    clock = FakeClock()
    queue: Queue[str] = Queue("test", clock)
    pauses = []
    for _ in range(15):
        pauses.append(queue.retry("a"))
        await clock.advance(pauses[-1])
        queue.done(await queue.take())
    assert pauses[:3] == [FIRST_REQUEUE_SECONDS, 2 * FIRST_REQUEUE_SECONDS, 4 * FIRST_REQUEUE_SECONDS]
    assert pauses[-1] == MAX_REQUEUE_SECONDS
    queue.forget("a")
    assert queue.retry("a") == FIRST_REQUEUE_SECONDS


async def test_a_thousand_keys_that_fail_together_are_spread_out() -> None:
    queue: Queue[int] = Queue("test", FakeClock())
    pauses = [queue.retry(number) for number in range(1000)]
    assert pauses[RETRY_BURST // 2] == FIRST_REQUEUE_SECONDS
    assert pauses[-1] == pytest.approx((1000 - RETRY_BURST) / RETRIES_PER_SECOND)


async def test_closing_wakes_every_taker_and_loses_no_key_in_work() -> None:
    clock = FakeClock()
    queue: Queue[str] = Queue("test", clock)
    queue.add("a")
    key = await queue.take()
    queue.add_after("b", 1)
    takers = [asyncio.ensure_future(queue.take()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert all(isinstance(end, Closed) for end in await asyncio.gather(*takers, return_exceptions=True))
    queue.done(key)
    assert clock.pending == 0
    with pytest.raises(Closed):
        await queue.take()


async def test_a_taker_that_is_cancelled_as_its_key_comes_passes_it_on() -> None:
    queue: Queue[str] = Queue("test", FakeClock())
    first, second = asyncio.ensure_future(queue.take()), asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 60) == "a"


KEYS = st.sampled_from("abcdef")


class QueueLife(RuleBasedStateMachine):
    """Against a model: a set of keys that somebody asked for since they were last handed out."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.queue: Queue[str] = Queue("test", self.clock, max_low_priority=2)
        self.wanted: set[str] = set()
        self.hasty: set[str] = set()  # those of them that somebody waits for
        self.in_work: set[str] = set()
        self.delayed: dict[str, float] = {}

    @rule(key=KEYS, lane=st.sampled_from(Priority))
    def add(self, key: str, lane: Priority) -> None:
        self.queue.add(key, lane)
        self.wanted.add(key)
        if lane is Priority.LIVE:
            self.hasty.add(key)

    @rule(key=KEYS, seconds=st.floats(0.1, 10))
    def add_after(self, key: str, seconds: float) -> None:
        self.queue.add_after(key, seconds)
        self.delayed[key] = min(self.delayed.get(key, float("inf")), self.clock.monotonic() + seconds)

    @rule(seconds=st.floats(0.1, 20))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(self.clock.advance(seconds))
        due = {key for key, at in self.delayed.items() if at <= self.clock.monotonic()}
        self.wanted |= due
        self.hasty |= due
        self.delayed = {key: at for key, at in self.delayed.items() if key not in due}

    @precondition(lambda self: self.wanted - self.in_work and (len(self.in_work) < 2 or self.hasty - self.in_work))
    @rule()
    def take(self) -> None:
        """Two at most are in work for patience: with fewer than two in work, whatever is wanted can be taken."""
        key = self.loop.run_until_complete(asyncio.wait_for(self.queue.take(), 60))
        assert key in self.wanted
        assert key not in self.in_work
        self.wanted.discard(key)
        self.hasty.discard(key)
        self.in_work.add(key)

    @precondition(lambda self: self.in_work)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.in_work)))
        self.in_work.discard(key)
        self.queue.done(key)

    @invariant()
    def what_is_wanted_and_free_waits(self) -> None:
        assert len(self.queue) == len(self.wanted - self.in_work)

    def teardown(self) -> None:
        self.loop.close()


TestQueueLife = QueueLife.TestCase
TestQueueLife.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


async def test_a_key_that_comes_later_comes_in_its_lane() -> None:
    clock = FakeClock()
    queue: Queue[str] = Queue("test", clock)
    queue.add_after("patient", 1, Priority.LOW)
    queue.add_after("hasty", 2)
    await clock.advance(3)
    assert [await queue.take(), await queue.take()] == ["hasty", "patient"]
