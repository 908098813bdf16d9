"""Which ports of the nodes belong to which job? Blocks of twenty, stored in the jobs' statuses and read from them.

The operator cannot know what else listens on a node. Pods declare their ports, so that the scheduler separates
conflicting ones; the blocks separate our own jobs.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from paddle_operator.api.paddlejob import Intranet
from paddle_operator.plan.endpoints import PORTS_PER_JOB
from paddle_operator.plan.job_view import Job


class PortBlocks:
    """Reserves a block for each job on the host network; with `for_every_job`, for any job.

    Where all pods are on one machine, Paddle's masters listen on every address and would conflict on the common port.
    """

    def __init__(
        self, blocks: Sequence[int], is_free: Callable[[int], bool] | None = None, *, for_every_job: bool = False
    ) -> None:
        self._blocks = blocks  # the first port of each, in order of preference
        self._is_free = is_free or (lambda _: True)
        self._for_every_job = for_every_job
        self._reserved: dict[str, int] = {}  # by uid; not yet in the job's status
        self._caches: list[Iterable[Job]] = []
        self._waiters: set[str] = set()  # UIDs of jobs that requested a block while none was free
        self._release_listeners: list[Callable[[Collection[str]], None]] = []

    @classmethod
    def of(cls, ports: range) -> "PortBlocks":
        return cls(blocks_of(ports))

    def register(self, jobs: Iterable[Job]) -> None:
        """Register a cache whose jobs hold blocks. Caches of several namespaces share the nodes and their ports."""
        self._caches.append(jobs)

    def reserve(self, job: Job) -> int | None:
        """The first port of a block that no other live job has: the same one until the job's status has it."""
        if not self._needs_block(job) or job.status.host_port is not None:
            self._reserved.pop(job.uid, None)
            return None
        if job.uid not in self._reserved:
            taken = {each.status.host_port for jobs in self._caches for each in jobs if not each.finished}
            taken |= set(self._reserved.values())
            free = next((first for first in self._blocks if first not in taken and self._is_free(first)), None)
            if free is None:
                self._waiters.add(job.uid)
                return None
            self._reserved[job.uid] = free
            self._waiters.discard(job.uid)
        return self._reserved[job.uid]

    def _needs_block(self, job: Job) -> bool:
        if job.spec is None or job.spec.suspend or not job.is_ours:
            return False
        return self._for_every_job or job.spec.intranet is Intranet.HOST

    def on_release(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call the listener with the UIDs of waiting jobs whenever a block may be free again."""
        self._release_listeners.append(listener)

    def release(self, uid: str) -> None:
        """Release the block of a job that is finished or deleted."""
        self._reserved.pop(uid, None)
        self._waiters.discard(uid)
        if waiters := tuple(self._waiters):
            for listener in self._release_listeners:
                listener(waiters)


def blocks_of(ports: range) -> range:
    """The first port of each block that fits into the range."""
    return range(ports.start, ports.stop - PORTS_PER_JOB + 1, PORTS_PER_JOB)
