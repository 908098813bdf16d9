"""Tells the server how a pod is, when that has changed: news that come while a write is under way go out together."""

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

GATHER_SECONDS = 0.01  # what happens in one breath, such as an address and a missing ConfigMap, is one write
CONFLICT_SECONDS = 0.05  # until the change that we did not know of has reached our cache


class StatusWriter:
    """Writes statuses of pods, over the newest version that is known."""

    def __init__(self, client: Client, pods: Informer[LocalPod, LocalPod], clock: Clock) -> None:
        self._client = client
        self._pods = pods
        self.clock = clock

    async def write(self, key: Key, uid: str, status_of: Callable[[LocalPod], Manifest | None]) -> None:
        """Return when the server has it, or has no such pod; None is no news. Tries for ever."""
        backoff = Backoff(self.clock)
        while (pod := self._pods.store.get(key)) and pod.uid == uid:
            status = status_of(pod)
            if status is None:
                return
            # A merge replaces the list of conditions, those of others too: hence the version.
            known = {"uid": uid, "resourceVersion": pod.metadata.resource_version}
            backoff.begin()
            try:
                written = await self._client.merge(
                    PODS, key, {"metadata": known, "status": status}, subresource="status"
                )
            except NotFound:
                return
            except Conflict:
                await self.clock.sleep(CONFLICT_SECONDS)
            except KubeError as error:
                log.warning("could not write a pod's status, trying again", extra={"key": str(key), "why": str(error)})
                await backoff.pause()
            else:
                self._pods.observe_write(written)
                return


class Report:
    """The status of one pod; `made` gives it as it should be now."""

    def __init__(self, key: Key, uid: str, writer: StatusWriter, made: Callable[[datetime], Manifest]) -> None:
        self._key = key
        self._uid = uid
        self._writer = writer
        self._made = made
        self._offered = self._told = b""
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def touch(self) -> None:
        self._idle.clear()
        self._news.set()

    async def told(self) -> None:
        """Return when the server knows all that there is to say."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            await self._writer.clock.sleep(GATHER_SECONDS)
            self._news.clear()
            await self._writer.write(self._key, self._uid, self._news_for)
            self._told = self._offered
            if not self._news.is_set():
                self._idle.set()

    def _news_for(self, _pod: LocalPod) -> Manifest | None:
        status = self._made(self._writer.clock.now())
        self._offered = msgspec.json.encode(status)
        return None if self._offered == self._told else status
