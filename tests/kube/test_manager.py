"""A manager's promises: in order up, in order down, and no part dies unnoticed."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any, cast

import pytest

from paddle_operator.kube import manager as manager_module
from paddle_operator.kube.client import Client, Scope
from paddle_operator.kube.config.server import StaticServerConfig
from paddle_operator.kube.controller import Controller
from paddle_operator.kube.errors import RunnableFailed
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.manager import Manager, run_until_signalled
from paddle_operator.kube.objects import CONFIG_MAPS, Key
from paddle_operator.kube.work_queue import Queue
from testbed.clock import FakeClock, run_ready_tasks
from testbed.faults import FaultProxy
from tests.kube.toy_operator import ToyOperator, copy_key, make_source

SOON_SECONDS = 60.0  # each takes milliseconds, but a machine may stall


class Part:
    """Stands for an informer whose task does what the test says."""

    kind = "parts"
    problem: str | None = None

    def __init__(self) -> None:
        self.full = asyncio.Event()
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def synced(self) -> bool:
        return self.full.is_set()

    async def wait_synced(self) -> None:
        await self.full.wait()

    async def run(self) -> None:
        await self.ends


def a_manager(part: Part, *controllers: Controller[str], **options: Any) -> Manager:
    return Manager(informers=[cast("Informer[Any, Any]", part)], controllers=controllers, **options)


async def test_a_part_that_raises_ends_the_process_with_its_reason() -> None:
    part = Part()
    running = asyncio.ensure_future(a_manager(part).run())
    await run_ready_tasks()
    part.ends.set_exception(ZeroDivisionError("a defect"))
    with pytest.raises(RunnableFailed, match="informer of parts: ZeroDivisionError: a defect"):
        await running


async def test_a_part_that_just_ends_ends_the_process_too() -> None:
    part = Part()
    running = asyncio.ensure_future(a_manager(part).run())
    await run_ready_tasks()
    part.ends.set_result(None)
    with pytest.raises(RunnableFailed, match="informer of parts ended unexpectedly"):
        await running


async def test_no_pass_begins_before_the_caches_are_full() -> None:
    part, clock, passes = Part(), FakeClock(), []

    async def reconcile(key: str) -> None:
        passes.append(key)

    queue: Queue[str] = Queue("test", clock)
    manager = a_manager(part, Controller("test", queue, reconcile, clock=clock))
    running = asyncio.ensure_future(manager.run())
    queue.add("a")
    await run_ready_tasks()
    assert passes == []
    assert list(manager.readiness_problems()) == ["the cache of parts is not synced: it is being listed"]
    part.full.set()
    await run_ready_tasks()
    assert passes == ["a"]
    assert list(manager.readiness_problems()) == []
    manager.stop()
    assert list(manager.readiness_problems()) == ["stopping"]
    await running


async def test_stop_before_caches_are_synced_ends_at_once() -> None:
    manager = a_manager(Part())
    running = asyncio.ensure_future(manager.run())
    await run_ready_tasks()
    manager.stop()
    await asyncio.wait_for(running, SOON_SECONDS)


async def test_stop_before_the_first_step_leaves_no_task() -> None:
    manager = a_manager(Part())
    manager.stop()
    await asyncio.wait_for(manager.run(), SOON_SECONDS)


async def test_stuck_reconcile_is_unhealthy_and_cancelled_by_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager_module, "DRAIN_SECONDS", 0.05)
    part, clock = Part(), FakeClock()
    part.full.set()

    async def reconcile(key: str) -> None:
        await asyncio.Event().wait()

    queue: Queue[str] = Queue("test", clock)
    manager = a_manager(part, Controller("test", queue, reconcile, clock=clock))
    running = asyncio.ensure_future(manager.run())
    queue.add("a")
    await run_ready_tasks()
    assert list(manager.health_problems()) == []
    await clock.advance(700)
    assert list(manager.health_problems()) == ["a reconcile of test has been running for 700 s"]
    manager.stop()
    await asyncio.wait_for(running, SOON_SECONDS)


async def test_signal_stops_gracefully_and_removes_handlers() -> None:
    part = Part()
    part.full.set()

    async def reconcile(key: str) -> None: ...

    controller = Controller("test", Queue[str]("test"), reconcile)
    running = asyncio.ensure_future(run_until_signalled(a_manager(part, controller)))
    await run_ready_tasks()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, SOON_SECONDS)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_sigusr1_toggles_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = Part()
    part.full.set()

    async def reconcile(key: str) -> None: ...

    controller = Controller("test", Queue[str]("test"), reconcile)
    root = logging.getLogger()
    with caplog.at_level(logging.WARNING):
        running = asyncio.ensure_future(run_until_signalled(a_manager(part, controller)))
        await run_ready_tasks()
        for level in (logging.DEBUG, logging.WARNING, logging.DEBUG):
            os.kill(os.getpid(), signal.SIGUSR1)
            await until(lambda level=level: root.level == level)  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, SOON_SECONDS)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


async def test_a_second_signal_ends_it_at_once() -> None:
    part = Part()
    part.full.set()

    async def reconcile(key: str) -> None:
        await asyncio.Event().wait()

    queue: Queue[str] = Queue("test")
    manager = a_manager(part, Controller("test", queue, reconcile))
    running = asyncio.ensure_future(run_until_signalled(manager))
    queue.add("a")
    await run_ready_tasks()
    os.kill(os.getpid(), signal.SIGINT)
    await until(lambda: "stopping" in manager.readiness_problems())
    assert not running.done()
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, SOON_SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    """For what comes through a signal or a socket: no clock of ours moves it."""
    async with asyncio.timeout(SOON_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def answered(client: Client, source: Key) -> None:
    while copy_key(source) not in {each.key for each in await client.list_all(CONFIG_MAPS, Scope(source.namespace))}:
        await asyncio.sleep(0.02)


async def test_work_continues_after_stop_and_restart(client: Client, namespace: str) -> None:
    source = Key(namespace, "source-1")
    for _ in range(2):
        await client.create(CONFIG_MAPS, make_source(source))
        desk = ToyOperator(client, namespace)
        running = asyncio.ensure_future(desk.manager.run())
        await asyncio.wait_for(answered(client, source), SOON_SECONDS)
        desk.manager.stop()
        await asyncio.wait_for(running, SOON_SECONDS)
        source = Key(namespace, "source-2")


async def test_an_idle_manager_sends_nothing_at_all(proxy: FaultProxy, proxied: Client, namespace: str) -> None:
    desk = ToyOperator(proxied, namespace)
    running = asyncio.ensure_future(desk.manager.run())
    await until(
        lambda: any(seen.code == 200 for seen in proxy.find_requests(verb="watch"))
    )  # the last that it has to send
    proxy.clear_requests()
    await asyncio.sleep(2)
    assert proxy.requests == []
    desk.manager.stop()
    await running


async def test_unreachable_server_is_reported_and_stop_works() -> None:
    async with Client(StaticServerConfig("http://127.0.0.1:1")) as nowhere:
        desk = ToyOperator(nowhere, "default")
        running = asyncio.ensure_future(desk.manager.run())
        await until(lambda: desk.sources.problem is not None)
        assert "cannot reach http://127.0.0.1:1: Connection refused" in next(desk.manager.readiness_problems())
        desk.manager.stop()
        await asyncio.wait_for(running, SOON_SECONDS)
