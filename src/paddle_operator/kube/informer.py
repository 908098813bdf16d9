"""Keeps a store equal to the server: list once, then follow; after a cut go on from the last version seen.

client-go's reflector contract, with three differences: versions are compared, so that our own writes can be taken over
before their echo comes; a relist tells only differences; silence is noticed, since a half-open connection never ends.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from enum import Enum
from typing import Any, Generic, cast

from paddle_operator.kube.backoff import Backoff
from paddle_operator.kube.client import EVERYTHING, IDLE_SECONDS, PAGE_SIZE, Client, Scope
from paddle_operator.kube.clock import Clock, SystemClock
from paddle_operator.kube.decoding import Unreadable
from paddle_operator.kube.errors import Expired, Invalid, KubeError, NotFound, ReadTimeout, Status, refusal
from paddle_operator.kube.metrics import InformerMetrics
from paddle_operator.kube.objects import Added, Bookmark, Change, Deleted, Error, Key, Modified, Resource, T
from paddle_operator.kube.store import Relist, Store, V
from paddle_operator.kube.work_queue import Priority

log = logging.getLogger(__name__)

CHANGES_A_TURN = 100  # about 10 ms of work; a turn after every change would be a system call each
ABSENT_PAUSE_SECONDS = 5.0  # one question; a lease is renewed more often than that


class ListBy(Enum):
    """How the first list comes: in pages, which every server knows, or as a stream (Kubernetes 1.34 and later)."""

    PAGES = "pages"
    STREAM = "stream"


class Informer(Generic[T, V]):
    """The store of one kind, and the task that keeps it true.

    `project` makes of each object what is kept of it: 100,000 pods take 95 MB as flat views, 389 MB as they are read.
    An `optional` kind is one that the cluster may not have (yet): its store is then empty, and counts as synced.
    """

    def __init__(
        self,
        client: Client,
        kind: Resource[T],
        scope: Scope = EVERYTHING,
        *,
        project: Callable[[T], V] | None = None,
        list_by: ListBy = ListBy.PAGES,
        idle_seconds: float = IDLE_SECONDS,
        page_size: int = PAGE_SIZE,
        optional: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.kind = kind
        self.store: Store[V] = Store()
        self.problem: str | None = None  # why we cannot follow right now, in one sentence
        self.absent = False  # the server has said that it does not have this kind, and nothing else since
        self._client = client
        self._scope = scope
        self._project = project or cast("Callable[[T], V]", _as_it_is)
        self._list_by = list_by
        self._idle_seconds = idle_seconds
        self._page_size = page_size
        self._optional = optional
        self._clock = clock or SystemClock()
        self._metrics = InformerMetrics(str(kind))
        self._synced = asyncio.Event()
        self._presence_listeners: list[Callable[[], None]] = []
        self._listed = False  # whether store.version is a version to go on from
        self._accepted = False  # whether the server has answered the present watch

    @property
    def synced(self) -> bool:
        """The store has been equal to the server at least once."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def on_presence(self, listener: Callable[[], None]) -> None:
        """Have it called whenever `absent` has changed; the store is emptied or filled by then."""
        self._presence_listeners.append(listener)

    def observe_write(self, written: T) -> None:
        """Take over the server's answer to a write of ours, so that the next look does not see the time before it."""
        self.store.put_own_write(self._project(written))

    def deleted(self, key: Key, uid: str, left: T | None) -> None:
        """Take over the answer to a delete of ours: what is left of the object, or nothing."""
        if left is None:
            self.store.delete_with_tombstone(key, uid)
        else:
            self.observe_write(left)

    async def run(self) -> None:
        """Follow the server until cancelled. No answer of the server ends this, and none makes it spin."""
        backoff = Backoff(self._clock)
        while True:
            backoff.begin()
            try:
                await self._list_and_follow()
            except Expired as error:
                self._listed = False
                log.info(
                    "the server no longer has our version, listing again",
                    extra={"kind": str(self.kind), "why": str(error)},
                )
            except KubeError as error:
                if self._optional and isinstance(error, NotFound):
                    self._empty(str(error))
                    await self._clock.sleep(ABSENT_PAUSE_SECONDS)
                    continue
                # A server that says nothing is asked anew, and is out of touch only if it does not answer that: of a
                # kind that has not changed since the API server was started, it sends no bookmarks.
                if not (isinstance(error, ReadTimeout) and self._listed and self._accepted):
                    self._report(str(error))
            await backoff.pause()

    async def _list_and_follow(self) -> None:
        if self._listed:
            await self._follow(None)
            return
        if not self.absent:
            self._metrics.relists.inc()
        if self._list_by is ListBy.STREAM:
            try:
                await self._follow(self.store.relist())
            except Invalid:  # a server that cannot stream lists says so at once
                self._list_by = ListBy.PAGES
            else:
                return
        try:
            await self._list_pages(self._page_size)
        except Expired:
            await self._list_pages(0)  # compacted between two pages; a list in one piece cannot expire
        await self._follow(None)

    async def _list_pages(self, size: int) -> None:
        relist: Relist[V] | None = None
        version = 0
        async with aclosing(self._client.list_pages(self.kind, self._scope, size)) as pages:
            async for page in pages:
                if relist is None:
                    version = int(page.version)
                    relist = self.store.relist(version)
                for item in page.items:
                    relist.saw(self._project(item))
                for unreadable in page.unreadable:
                    self._skip(unreadable)
                await asyncio.sleep(0)  # between pages others have their turn
        assert relist, "a list has at least one page"
        self._finish(relist, version)

    async def _follow(self, relist: Relist[V] | None) -> None:
        """Take in changes until the server ends the watch; the initial ones go to `relist` until its bookmark."""
        watch = self._client.watch(
            self.kind,
            self._scope,
            since="" if relist else str(self.store.version),
            initial=relist is not None,
            idle_seconds=self._idle_seconds,
        )
        taken, self._accepted = 0, False
        async with aclosing(watch) as batches:
            async for batch in batches:
                self._accepted = True
                if relist is None:
                    self._report(None)
                for change in batch:
                    if relist:
                        relist = self._take_initial(relist, change)
                    else:
                        self._take(change)
                self._metrics.holds(len(self.store))
                taken += len(batch)
                if taken >= CHANGES_A_TURN:
                    taken = 0
                    await asyncio.sleep(0)  # a busy watch always has more: the workers must have their turn

    def _take(self, change: Change[T] | Unreadable) -> None:
        store = self.store
        if isinstance(change, Added | Modified):
            version = change.object.version
            store.version = max(store.version, version)
            known = store.get(change.object.key)
            if known is not None and known.version >= version:
                return  # our own write comes back: of a pod's ten changes that is every fifth
            if store.put(self._project(change.object)):
                self._metrics.changed()
        elif isinstance(change, Deleted):
            view = self._project(change.object)
            store.version = max(store.version, view.version)
            if store.remove(view.key, view.uid):
                self._metrics.changed()
        elif isinstance(change, Bookmark):
            store.version = max(store.version, int(change.object.metadata.resource_version))
        elif isinstance(change, Error):
            raise refusal(f"watch {self.kind}", change.object)
        else:
            self._skip(change)

    def _take_initial(self, relist: Relist[V], change: Change[T] | Unreadable) -> Relist[V] | None:
        if isinstance(change, Bookmark):
            if not change.ends_initial_list:
                return relist
            version = int(change.object.metadata.resource_version)
            if version < self.store.version:  # the data went back, and only pages tell that before the first object
                self._list_by = ListBy.PAGES
                raise Expired(f"list {self.kind}", Status(410, "Expired", "the server's data went back in time"))
            self._finish(relist, version)
            return None
        if isinstance(change, Error):
            raise refusal(f"list {self.kind}", change.object)
        if isinstance(change, Unreadable):
            self._skip(change)
        else:
            relist.saw(self._project(change.object))
        return relist

    def _finish(self, relist: Relist[V], version: int) -> None:
        relist.finish(version)
        self._listed = True
        self._metrics.holds(len(self.store))
        self._report(None)
        self._synced.set()
        if self.absent:
            self.absent = False
            log.info("the server has this kind now", extra={"kind": str(self.kind)})
            self._tell_presence()

    def _empty(self, why: str) -> None:
        """The server does not have the kind, so no object of it, and no version to go on from; said once."""
        news = not self.absent
        self.absent = True
        self._listed = False
        for had in tuple(self.store):
            self.store.remove(had.key, had.uid, Priority.LOW)
        self._metrics.holds(len(self.store))
        self._report(None)  # it is an answer
        self._synced.set()
        if news:
            log.warning(
                "the server does not have this kind, asking until it does", extra={"kind": str(self.kind), "why": why}
            )
            self._tell_presence()

    def _tell_presence(self) -> None:
        for listener in self._presence_listeners:
            listener()

    def _skip(self, unreadable: Unreadable) -> None:
        """An object that does not fit its type is as good as absent; it must not stop the others."""
        self._metrics.unreadable.inc()
        metadata = unreadable.metadata
        self.store.remove(metadata.key, metadata.uid)
        if metadata.resource_version.isdigit():
            self.store.version = max(self.store.version, int(metadata.resource_version))
        log.warning(
            "left out an object that cannot be read",
            extra={"kind": str(self.kind), "key": str(metadata.key), "why": unreadable.problem},
        )

    def _report(self, problem: str | None) -> None:
        """Say once that we lost touch, and once that we have it again."""
        if problem is not None and self.problem is None:
            log.warning("lost touch with the server, trying again", extra={"kind": str(self.kind), "why": problem})
        elif problem is None and self.problem is not None:
            log.info("in touch with the server again", extra={"kind": str(self.kind)})
        self.problem = problem


def _as_it_is(view: Any) -> Any:
    return view
