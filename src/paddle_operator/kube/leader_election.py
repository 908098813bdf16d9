"""Who may write? Election on a Lease, with a fence: a leader that cannot renew has stopped before another may start.

Only durations on our own monotonic clock decide; the times in the Lease are for people, so clocks may differ and jump.
A holder counts its term from before it asked, a rival from after it saw: the gap between the two is never negative.
"""

import logging
import random
import socket
import uuid
from asyncio import FIRST_COMPLETED, create_task, gather, wait
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from paddle_operator.kube import metrics
from paddle_operator.kube.client import Client
from paddle_operator.kube.clock import Clock, SystemClock, within
from paddle_operator.kube.errors import AlreadyExists, Conflict, Fenced, KubeError, NotFound
from paddle_operator.kube.objects import LEASES, Key, Lease, LeaseSpec, Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Terms:
    """A lease lasts `lease_seconds`; its holder stops after `renew_seconds`, so that no write is under way then."""

    lease_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(f"{self}: each must be smaller than the one before, or a holder outlives its lease")


class LostLease(Exception):  # a fact that ends the process, so that a fresh one takes part again
    """We led, and may not any more."""


class Elector:
    """Takes part in one election. `client` should be nobody else's, so that a flood of work cannot delay a renewal."""

    def __init__(
        self,
        client: Client,
        key: Key,
        *,
        identity: str = "",
        terms: Terms | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._client = client
        self._key = key
        self._terms = terms or Terms()
        self._clock = clock or SystemClock()
        self._lease: Lease | None = None  # as last seen
        self._seen_at = 0.0
        self._valid_until = float("-inf")
        self._metric = metrics.leading(key.name)
        self._metric.set(0)

    @property
    def leading(self) -> bool:
        return self._clock.monotonic() < self._valid_until

    def fence(self) -> None:
        """Asked before each write. Raises Fenced where another may be writing already."""
        if not self.leading:
            raise Fenced(f"{self.identity} does not hold the lease {self._key} (any more): nothing was sent")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, then do the work while renewing it; at the end of the work give the lease back.

        Raises LostLease after the work has been cancelled and has ended, and whatever the work raises.
        """
        await self._acquire()
        log.info("leading", extra={"lease": str(self._key), "identity": self.identity})
        self._metric.set(1)
        working, renewing = create_task(_run(work), name="leading"), create_task(self._keep(), name="renewing")
        try:
            await wait((working, renewing), return_when=FIRST_COMPLETED)
        finally:
            working.cancel()
            await wait((working,))  # the work has stopped before anything lets another begin
            renewing.cancel()
            await gather(renewing, return_exceptions=True)
            self._metric.set(0)
            await self._release()
        if not renewing.cancelled() and (lost := renewing.exception()):
            raise lost
        await working

    async def _acquire(self) -> None:
        while True:
            try:
                if await within(self._clock, self._terms.renew_seconds, self._try_to_acquire()):
                    return
            except (KubeError, TimeoutError) as error:
                log.warning("cannot take part in the election, trying again", extra={"why": str(error)})
            # Jitter, or rivals that started together collide at every try.
            await self._clock.sleep(self._terms.retry_seconds * (1 + random.random() * 0.2))  # noqa: S311

    async def _try_to_acquire(self) -> bool:
        try:
            self._saw(await self._client.get(LEASES, self._key))
        except NotFound:
            self._lease = None
        asked_at = self._clock.monotonic()
        spec = self._lease.spec if self._lease else LeaseSpec()
        runs_out_at = self._seen_at + (spec.lease_duration_seconds or 0)
        if spec.holder_identity not in (None, "", self.identity) and asked_at <= runs_out_at:
            return False
        write = self._client.replace if self._lease else self._client.create
        try:
            self._hold(await write(LEASES, self._manifest(self._lease)), asked_at)
        except (AlreadyExists, Conflict):
            return False  # a rival was quicker, or the holder lives after all
        return True

    def _saw(self, lease: Lease) -> None:
        """A lease counts from when we saw it change, not from what its holder's clock says."""
        if self._lease is None or self._lease.metadata.resource_version != lease.metadata.resource_version:
            self._lease = lease
            self._seen_at = self._clock.monotonic()

    def _hold(self, lease: Lease, asked_at: float) -> None:
        self._saw(lease)
        self._valid_until = asked_at + self._terms.renew_seconds

    async def _keep(self) -> None:
        """Renew until that fails for too long. Raises LostLease."""
        while True:
            await self._clock.sleep(min(self._terms.retry_seconds, self._left()))
            try:
                await within(self._clock, min(self._terms.retry_seconds * 2, self._left()), self._renew())
            except (KubeError, TimeoutError) as error:
                if not self.leading:
                    why = str(error) or "no answer"
                    raise LostLease(f"could not renew the lease {self._key} in time: {why}") from error
                log.warning("could not renew the lease, trying again", extra={"why": str(error) or "no answer"})

    def _left(self) -> float:
        return max(self._valid_until - self._clock.monotonic(), 0)

    async def _renew(self) -> None:
        assert self._lease
        asked_at = self._clock.monotonic()
        try:
            self._hold(await self._client.replace(LEASES, self._manifest(self._lease)), asked_at)
        except Conflict:  # somebody touched it, or a renewal of ours was done though its answer was lost
            self._saw(await self._client.get(LEASES, self._key))
            if self._lease.spec.holder_identity != self.identity:
                raise self._lost(
                    f"{self._lease.spec.holder_identity or 'nobody'} holds the lease {self._key}"
                ) from None
        except NotFound:  # with the lease deleted, a rival may make its own at any moment
            raise self._lost(f"the lease {self._key} was deleted") from None

    def _lost(self, sentence: str) -> LostLease:
        self._valid_until = float("-inf")
        return LostLease(sentence)

    async def _release(self) -> None:
        """Let the next one begin at once; best effort, the lease runs out anyway."""
        held = self.leading
        self._valid_until = float("-inf")
        if not held or self._lease is None:
            return
        manifest = self._manifest(self._lease)
        manifest = {**manifest, "spec": {**manifest["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await within(self._clock, self._terms.retry_seconds, self._client.replace(LEASES, manifest))
        except (KubeError, TimeoutError) as error:
            log.info("could not give the lease back, it will run out", extra={"why": str(error) or "no answer"})

    def _manifest(self, lease: Lease | None) -> Manifest:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = lease.spec if lease else None
        ours = spec is not None and spec.holder_identity == self.identity
        changes = (spec.lease_transitions or 0) if spec else 0
        metadata = {"name": self._key.name, "namespace": self._key.namespace}
        if lease:
            metadata["resourceVersion"] = lease.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._terms.lease_seconds,
                "acquireTime": spec.acquire_time if spec and ours else now,
                "renewTime": now,
                "leaseTransitions": changes if spec is None or ours else changes + 1,
            },
        }


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
