"""Leader election on a Lease, with a fence: a leader that cannot renew stops writing before another may start.

Only durations on our own monotonic clock decide; the times in the Lease are informative, so clocks may differ and jump.
A holder counts its term from before its request, a candidate from after it saw the renewal: the terms never overlap.
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
class LeaseTimings:
    """A lease expires after `lease_seconds`; its holder stops after `renew_seconds`, so no write is in flight then."""

    lease_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                f"{self}: retry_seconds < renew_seconds < lease_seconds must hold, or a holder outlives its lease"
            )


class LostLease(Exception):  # ends the process; the restarted one is a candidate again
    """This process was the leader and is no longer."""


class Elector:
    """A candidate in one election. It needs its own `client`, so that other requests cannot delay a renewal."""

    def __init__(
        self,
        client: Client,
        key: Key,
        *,
        identity: str = "",
        timings: LeaseTimings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._client = client
        self._key = key
        self._timings = timings or LeaseTimings()
        self._clock = clock or SystemClock()
        self._lease: Lease | None = None  # as last observed
        self._observed_at = 0.0
        self._valid_until = float("-inf")
        self._metric = metrics.leader_gauge(key.name)
        self._metric.set(0)

    @property
    def leading(self) -> bool:
        return self._clock.monotonic() < self._valid_until

    def fence(self) -> None:
        """Called before each write. Raises Fenced if another process may be the leader."""
        if not self.leading:
            raise Fenced(f"{self.identity} does not hold the lease {self._key}: nothing was sent")

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Acquire the lease, then run `work` while renewing it; release it when the work ends.

        Raises LostLease after the work has been cancelled and has ended, and every error of the work itself.
        """
        await self._acquire()
        log.info("became leader", extra={"lease": str(self._key), "identity": self.identity})
        self._metric.set(1)
        working, renewing = create_task(_run(work), name="leading"), create_task(self._keep_renewing(), name="renewing")
        try:
            await wait((working, renewing), return_when=FIRST_COMPLETED)
        finally:
            working.cancel()
            await wait((working,))  # the work has stopped before another process may lead
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
                if await within(self._clock, self._timings.renew_seconds, self._try_to_acquire()):
                    return
            except (KubeError, TimeoutError) as error:
                log.warning("cannot read the lease; retrying", extra={"error": str(error)})
            # Jitter, or candidates that started together collide at every try.
            await self._clock.sleep(self._timings.retry_seconds * (1 + random.random() * 0.2))  # noqa: S311

    async def _try_to_acquire(self) -> bool:
        try:
            self._observe(await self._client.get(LEASES, self._key))
        except NotFound:
            self._lease = None
        requested_at = self._clock.monotonic()
        spec = self._lease.spec if self._lease else LeaseSpec()
        expires_at = self._observed_at + (spec.lease_duration_seconds or 0)
        if spec.holder_identity not in (None, "", self.identity) and requested_at <= expires_at:
            return False
        write = self._client.replace if self._lease else self._client.create
        try:
            self._set_held(await write(LEASES, self._manifest(self._lease)), requested_at)
        except (AlreadyExists, Conflict):
            return False  # another candidate was quicker, or the holder renewed
        return True

    def _observe(self, lease: Lease) -> None:
        """A term counts from when we saw the lease change, not from its holder's clock."""
        if self._lease is None or self._lease.metadata.resource_version != lease.metadata.resource_version:
            self._lease = lease
            self._observed_at = self._clock.monotonic()

    def _set_held(self, lease: Lease, requested_at: float) -> None:
        self._observe(lease)
        self._valid_until = requested_at + self._timings.renew_seconds

    async def _keep_renewing(self) -> None:
        """Renew until that fails for `renew_seconds`. Raises LostLease."""
        while True:
            await self._clock.sleep(min(self._timings.retry_seconds, self._seconds_left()))
            try:
                await within(self._clock, min(self._timings.retry_seconds * 2, self._seconds_left()), self._renew())
            except (KubeError, TimeoutError) as error:
                if not self.leading:
                    reason = str(error) or "timed out"
                    raise LostLease(f"could not renew the lease {self._key} in time: {reason}") from error
                log.warning("cannot renew the lease; retrying", extra={"error": str(error) or "timed out"})

    def _seconds_left(self) -> float:
        return max(self._valid_until - self._clock.monotonic(), 0)

    async def _renew(self) -> None:
        assert self._lease
        requested_at = self._clock.monotonic()
        try:
            self._set_held(await self._client.replace(LEASES, self._manifest(self._lease)), requested_at)
        except Conflict:  # another client wrote it, or our renewal succeeded though its response was lost
            self._observe(await self._client.get(LEASES, self._key))
            if self._lease.spec.holder_identity != self.identity:
                raise self._lose(
                    f"{self._lease.spec.holder_identity or 'no process'} holds the lease {self._key}"
                ) from None
        except NotFound:  # another candidate may create its own at any moment
            raise self._lose(f"the lease {self._key} was deleted") from None

    def _lose(self, reason: str) -> LostLease:
        self._valid_until = float("-inf")
        return LostLease(reason)

    async def _release(self) -> None:
        """Release the lease, so that another may lead at once. Best effort: it expires anyway."""
        was_leading = self.leading
        self._valid_until = float("-inf")
        if not was_leading or self._lease is None:
            return
        manifest = self._manifest(self._lease)
        manifest = {**manifest, "spec": {**manifest["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await within(self._clock, self._timings.retry_seconds, self._client.replace(LEASES, manifest))
        except (KubeError, TimeoutError) as error:
            log.info("cannot release the lease; it will expire", extra={"error": str(error) or "timed out"})

    def _manifest(self, lease: Lease | None) -> Manifest:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = lease.spec if lease else None
        is_ours = spec is not None and spec.holder_identity == self.identity
        transitions = (spec.lease_transitions or 0) if spec else 0
        metadata = {"name": self._key.name, "namespace": self._key.namespace}
        if lease:
            metadata["resourceVersion"] = lease.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._timings.lease_seconds,
                "acquireTime": spec.acquire_time if spec and is_ours else now,
                "renewTime": now,
                "leaseTransitions": transitions if spec is None or is_ours else transitions + 1,
            },
        }


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()
