"""Takes keys from a queue and brings each object nearer to its plan, several at a time, never one twice at once.

What a pass raises is answered by a later pass: an API server's refusal after a pause, and so is a defect of ours, since
one odd object must not stop the others.
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
"""Bring one object nearer to its plan; the answer is when to look again if no event comes first."""


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
        """Work until the queue is closed; then finish what is in hand and return."""
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
                    await self._pass(key)
            finally:
                self.queue.done(key)

    async def _pass(self, key: K) -> None:
        try:
            requeue_at = await self._reconcile(key)
        except Fenced:
            log.info("not ours to write any more")  # the next leader looks at every object anyway
        except Conflict as error:
            self._again(key, logging.DEBUG, str(error))  # somebody was quicker: look again, that is how it works
        except KubeError as error:
            self._again(key, logging.WARNING, str(error))
        except Exception:
            log.exception("a defect of ours in this pass, please report it")
            self._again(key, logging.WARNING, "see the traceback above")
        else:
            self.queue.forget(key)
            if requeue_at is None:
                self._metrics.success.inc()
                self.queue.cancel_add_after(key)
            else:
                self._metrics.requeue_after.inc()
                self.queue.add_after(key, (requeue_at - self._clock.now()).total_seconds())

    def _again(self, key: K, level: int, why: str) -> None:
        self._metrics.error.inc()
        self._metrics.errors.inc()
        seconds = self.queue.retry(key)
        log.log(level, "trying again later", extra={"seconds": round(seconds, 2), "why": why})
