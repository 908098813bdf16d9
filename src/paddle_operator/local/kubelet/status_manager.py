"""Writes changed pod statuses to the API server; changes during a write are combined into the next one."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock
from paddle_operator.kube.errors import Conflict, KubeError, NotFound
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Manifest
from paddle_operator.local.kubelet.pod import PODS, LocalPod

log = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.01  # changes in one instant, such as an address and a missing ConfigMap, are one write
CONFLICT_RETRY_SECONDS = 0.05  # until another client's change has reached the cache


class StatusManager:
    """Writes statuses of pods over the newest version in the cache."""

    def __init__(self, client: Client, pods: Informer[LocalPod, LocalPod], clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self.clock = clock

    async def write(self, key: Key, uid: str, compute: Callable[[LocalPod], Manifest | None]) -> None:
        """Write the computed status, if it is not None. Returns once the server has it or the pod is deleted.

        Other errors are retried without a limit.
        """
        backoff = Backoff(self.clock)
        while (pod := self._pods.store.get(key)) and pod.uid == uid:
            status = compute(pod)
            if status is None:
                return
            # A merge patch replaces the list of conditions, those of other owners too: hence the resourceVersion.
            precondition = {"uid": uid, "resourceVersion": pod.metadata.resource_version}
            backoff.begin()
            try:
                written = await self._client.merge(
                    PODS, key, {"metadata": precondition, "status": status}, subresource="status"
                )
            except NotFound:
                return
            except Conflict:
                await self.clock.sleep(CONFLICT_RETRY_SECONDS)
            except KubeError as error:
                log.warning("pod status write failed, retrying", extra={"key": str(key), "error": str(error)})
                await backoff.pause()
            else:
                self._pods.observe_write(written)
                return


class StatusReporter:
    """Keeps the server's status of one pod equal to what `compute` returns."""

    def __init__(self, key: Key, uid: str, manager: StatusManager, compute: Callable[[datetime], Manifest]) -> None:
        self._key = key
        self._uid = uid
        self._manager = manager
        self._compute = compute
        self._computed = self._written = b""
        self._changed = asyncio.Event()
        self._flushed = asyncio.Event()
        self._flushed.set()

    def request_update(self) -> None:
        self._flushed.clear()
        self._changed.set()

    async def wait_flushed(self) -> None:
        """Return once the server has the current status."""
        await self._flushed.wait()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            await self._manager.clock.sleep(DEBOUNCE_SECONDS)
            self._changed.clear()
            await self._manager.write(self._key, self._uid, self._changed_status)
            self._written = self._computed
            if not self._changed.is_set():
                self._flushed.set()

    def _changed_status(self, _pod: LocalPod) -> Manifest | None:
        status = self._compute(self._manager.clock.now())
        self._computed = msgspec.json.encode(status)
        return None if self._computed == self._written else status
