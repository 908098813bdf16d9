"""The lifecycle of a controller process: sync caches, acquire the lease, run controllers; stop in reverse order.

Every part is a task of one group. A part that ends before `stop` ends the process with its reason: kubelet restarts
the container, while a process without one of its parts would hang unnoticed.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from paddle_operator.kube.controller import Controller
from paddle_operator.kube.errors import KubeError, RunnableFailed
from paddle_operator.kube.events import Recorder
from paddle_operator.kube.health_server import MetricsAuth, serve
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.leader_election import Elector, LostLease
from paddle_operator.kube.log_format import toggle_debug

log = logging.getLogger(__name__)

DRAIN_SECONDS = 20.0  # of kubelet's default grace period of 30: 10 s remain for the lease and the last events
FLUSH_SECONDS = 3.0
STUCK_SECONDS = 600.0  # no reconcile takes this long unless it hangs


class Manager:
    def __init__(
        self,
        *,
        informers: Sequence[Informer[Any, Any]],
        controllers: Sequence[Controller[Any]],
        elector: Elector | None = None,
        recorder: Recorder | None = None,
        health_address: str = "0",
        metrics_address: str = "0",
        metrics_auth: MetricsAuth | None = None,
        on_synced: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_synced` is called once, when all caches are filled and before the election."""
        self._informers = informers
        self._controllers = controllers
        self._elector = elector
        self._recorder = recorder
        self._addresses = health_address, metrics_address
        self._metrics_auth = metrics_auth
        self._on_synced = on_synced
        self._stopping = asyncio.Event()
        self._is_working = False

    def stop(self) -> None:
        """Take no new keys, finish those in work, release the lease, end."""
        self._stopping.set()
        for controller in self._controllers:
            controller.queue.close()

    async def run(self) -> None:
        """Run until `stop`. Raises RunnableFailed with the part and the reason if a part ends before."""
        try:
            async with (
                serve(*self._addresses, self.health_problems, self.readiness_problems, self._metrics_auth),
                asyncio.TaskGroup() as parts,
            ):
                background = [parts.create_task(part) for part in self._background_parts()]
                work = parts.create_task(self._until_stopped("work", self._sync_and_lead))
                await self._stopping.wait()
                await self._drain(work)
                await self._flush_events()
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as group:
            if failed := group.subgroup(RunnableFailed):
                raise _first(failed) from None
            raise

    def health_problems(self) -> Iterator[str]:
        for controller in self._controllers:
            seconds = controller.queue.longest_in_work_seconds()
            if seconds > STUCK_SECONDS:
                yield f"a reconcile of {controller.name} has been running for {seconds:.0f} s"

    def readiness_problems(self) -> Iterator[str]:
        if self._stopping.is_set():
            yield "stopping"
        for informer in self._informers:
            if not informer.synced:
                yield f"the cache of {informer.kind} is not synced: {informer.problem or 'it is being listed'}"

    def _background_parts(self) -> Iterator[Coroutine[Any, Any, None]]:
        for informer in self._informers:
            yield self._until_stopped(f"informer of {informer.kind}", informer.run)
        if self._recorder:
            yield self._until_stopped("event recorder", self._recorder.run)

    async def _until_stopped(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part, which may end only after `stop`. Raises RunnableFailed."""
        try:
            await part()
        except (KubeError, LostLease) as error:
            raise RunnableFailed(f"{name}: {error}") from error
        except Exception as error:
            log.exception("part of the process failed", extra={"part": name})
            raise RunnableFailed(f"{name}: {type(error).__name__}: {error}") from error
        if not self._stopping.is_set():
            raise RunnableFailed(f"{name} ended unexpectedly")

    async def _sync_and_lead(self) -> None:
        await asyncio.gather(*(informer.wait_synced() for informer in self._informers))
        self._on_synced()
        if self._elector:
            await self._elector.lead(self._run_controllers)
        else:
            await self._run_controllers()

    async def _run_controllers(self) -> None:
        self._is_working = True
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.name)

    async def _drain(self, work: asyncio.Task[None]) -> None:
        if self._is_working:
            _, unfinished = await asyncio.wait((work,), timeout=DRAIN_SECONDS)
            if unfinished:
                log.warning("work not finished in time; cancelled", extra={"seconds": DRAIN_SECONDS})
        work.cancel()
        await asyncio.wait((work,))

    async def _flush_events(self) -> None:
        if not self._recorder:
            return
        try:
            await asyncio.wait_for(self._recorder.flush(), FLUSH_SECONDS)
        except (KubeError, TimeoutError) as error:
            log.info("last events not sent", extra={"error": str(error) or "timed out"})


async def run_until_signalled(manager: Manager) -> None:
    """Run the manager. The first SIGTERM or SIGINT stops it gracefully, the second at once.

    SIGUSR1 switches the log to debug, and back.
    """
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(manager.run())
    signals = 0

    def handle_signal() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            log.info("stopping; a second signal cancels the work in progress")
            manager.stop()
        else:
            running.cancel()

    usual_level = max(logging.INFO, logging.getLogger().level)
    handlers: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGTERM: handle_signal,
        signal.SIGINT: handle_signal,
        signal.SIGUSR1: lambda: log.warning("log level changed", extra={"to": toggle_debug(usual_level)}),
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        await running
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _first(group: BaseExceptionGroup[RunnableFailed]) -> RunnableFailed:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
