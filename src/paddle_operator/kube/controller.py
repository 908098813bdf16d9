"""Takes keys from a queue and reconciles their objects, several at once, but never one object twice at once.

A reconcile that raises is repeated after a backoff, even for our own bugs: one odd object must not stop the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Generic

from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.errors import Conflict, Fenced, KubeError
from paddle_operator.kube.log_format import about
from paddle_operator.kube.metrics import ControllerMetrics
from paddle_operator.kube.work_queue import Closed, K, Queue

log = logging.getLogger(__name__)

Reconcile = Callable[[K], Awaitable[datetime | None]]
"""Move one object towards its plan. Returns when to requeue if no event arrives first."""


class Controller(Generic[K]):
    def __init__(
        self, name: str, queue: Queue[K], reconcile: Reconcile[K], *, workers: int = 16, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._workers = workers
        self._clock = clock or SystemClock()
        self._metrics = ControllerMetrics(name, workers)

    async def run(self) -> None:
        """Reconcile until the queue is closed; return when the keys in work are finished."""
        async with asyncio.TaskGroup() as workers:
            for number in range(self._workers):
                workers.create_task(self._work(), name=f"{self.name} worker {number}")

    async def _work(self) -> None:
        while True:
            try:
                key = await self.queue.take()
            except Closed:
                return
            try:
                with about(key), self._metrics.time.time(), self._metrics.active.track_inprogress():
                    await self._reconcile_key(key)
            finally:
                self.queue.done(key)

    async def _reconcile_key(self, key: K) -> None:
        try:
            requeue_at = await self._reconcile(key)
        except Fenced:
            log.info("leadership lost; reconcile aborted")  # the next leader reconciles every object
        except Conflict as error:
            self._requeue(key, logging.DEBUG, str(error))  # our copy was stale: normal
        except KubeError as error:
            self._requeue(key, logging.WARNING, str(error))
        except Exception:
            log.exception("unexpected error in reconcile; please report this bug")
            self._requeue(key, logging.WARNING, "unexpected error")
        else:
            self.queue.forget(key)
            if requeue_at is None:
                self._metrics.success.inc()
                self.queue.cancel_add_after(key)
            else:
                self._metrics.requeue_after.inc()
                self.queue.add_after(key, (requeue_at - self._clock.now()).total_seconds())

    def _requeue(self, key: K, level: int, error: str) -> None:
        self._metrics.error.inc()
        self._metrics.errors.inc()
        seconds = self.queue.retry(key)
        log.log(level, "reconcile failed; requeued", extra={"seconds": round(seconds, 2), "error": error})
