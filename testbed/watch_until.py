"""Watch objects until a claim of a test holds. Nothing is polled; a timeout says how the objects are instead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic

import msgspec

from paddle_operator.kube.client import EVERYTHING, Client, Scope
from paddle_operator.kube.informer import Informer
from paddle_operator.kube.objects import Key, Resource, T

WAIT_TIMEOUT_SECONDS = 120.0  # what takes a second on an idle machine; only what never comes needs that long


class WatchedObjects(Generic[T]):
    """The objects of one kind as a test sees them; `namespace` is meant where a name alone is given."""

    def __init__(self, informer: Informer[T, T], namespace: str) -> None:
        self.store = informer.store
        self._namespace = namespace
        self._heard = asyncio.Event()
        self.store.listen(lambda *_: self._heard.set())

    async def until(
        self, name: str, claim: Callable[[T], bool] = lambda _: True, *, within_seconds: float = WAIT_TIMEOUT_SECONDS
    ) -> T:
        """The object, as soon as the claim holds for it. Raises AssertionError that shows how it is instead."""
        found: list[T] = []

        def holds() -> bool:
            one = self.store.get(Key(self._namespace, name))
            found[:] = [one] if one is not None else []
            return one is not None and claim(one)

        await self.wait_until(holds, within_seconds=within_seconds, instead=lambda: shown(found, name))
        return found[0]

    async def wait_deleted(self, name: str, *, within_seconds: float = WAIT_TIMEOUT_SECONDS) -> None:
        key = Key(self._namespace, name)
        await self.wait_until(lambda: self.store.get(key) is None, within_seconds=within_seconds)

    async def wait_until(
        self,
        claim: Callable[[], bool],
        *,
        within_seconds: float = WAIT_TIMEOUT_SECONDS,
        instead: Callable[[], str] = lambda: "it is not so",
    ) -> None:
        """Return as soon as a claim about the whole store holds; it is asked again after each batch of news."""
        try:
            async with asyncio.timeout(within_seconds):
                while not claim():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within_seconds:.0f} s: {instead()}") from None


@asynccontextmanager
async def watch_objects(
    client: Client, kind: Resource[T], scope: Scope = EVERYTHING
) -> AsyncIterator[WatchedObjects[T]]:
    """Watch one kind for the length of a block."""
    informer: Informer[T, T] = Informer(client, kind, scope)
    follower = WatchedObjects(informer, scope.namespace)
    task = asyncio.create_task(informer.run(), name=f"following {kind}")
    try:
        await informer.wait_synced()
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def shown(found: list[T], name: str) -> str:
    return msgspec.json.format(msgspec.json.encode(found[0])).decode() if found else f"there is no {name}"
