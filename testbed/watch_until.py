"""Watches objects until a predicate holds. Nothing is polled; a timeout shows the present objects."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic

import msgspec

from paddle_operator.kube.client import EVERYTHING, Client, Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Resource, T

WAIT_TIMEOUT_SECONDS = 120.0  # most waits take a second on an idle machine


class WatchedObjects(Generic[T]):
    """The watched objects of one kind; names without a namespace are in `namespace`."""

    def __init__(self, informer: Informer[T, T], namespace: str) -> None:
        self.store = informer.store
        self._namespace = namespace
        self._changed = asyncio.Event()
        self.store.listen(lambda *_: self._changed.set())

    async def until(
        self,
        name: str,
        predicate: Callable[[T], bool] = lambda _: True,
        *,
        timeout_seconds: float = WAIT_TIMEOUT_SECONDS,
    ) -> T:
        """The object, once the predicate holds for it. Raises AssertionError with the present object on a timeout."""
        matches: list[T] = []

        def is_met() -> bool:
            current = self.store.get(Key(self._namespace, name))
            matches[:] = [current] if current is not None else []
            return current is not None and predicate(current)

        await self.wait_until(is_met, timeout_seconds=timeout_seconds, describe=lambda: describe_object(matches, name))
        return matches[0]

    async def wait_deleted(self, name: str, *, timeout_seconds: float = WAIT_TIMEOUT_SECONDS) -> None:
        key = Key(self._namespace, name)
        await self.wait_until(lambda: self.store.get(key) is None, timeout_seconds=timeout_seconds)

    async def wait_until(
        self,
        predicate: Callable[[], bool],
        *,
        timeout_seconds: float = WAIT_TIMEOUT_SECONDS,
        describe: Callable[[], str] = lambda: "the predicate does not hold",
    ) -> None:
        """Return once the predicate holds; it is evaluated after each batch of watch events."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not predicate():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {timeout_seconds:.0f} s: {describe()}") from None


@asynccontextmanager
async def watch_objects(
    client: Client, kind: Resource[T], scope: Scope = EVERYTHING
) -> AsyncIterator[WatchedObjects[T]]:
    """Watch one kind for the length of a block."""
    informer: Informer[T, T] = Informer(client, kind, scope)
    watched = WatchedObjects(informer, scope.namespace)
    task = asyncio.create_task(informer.run(), name=f"watch {kind}")
    try:
        await informer.wait_synced()
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def describe_object(matches: list[T], name: str) -> str:
    return msgspec.json.format(msgspec.json.encode(matches[0])).decode() if matches else f"there is no {name}"
