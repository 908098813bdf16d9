"""Which ports of the nodes belong to which job? Blocks of twenty, remembered on the jobs and learnt again from them.

No list of ours can know what else listens on a node: the ports are declared on the pods, so that the scheduler keeps
apart what would clash. The blocks keep two jobs of ours apart.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from paddle_operator.api.paddlejob import Intranet
from paddle_operator.plan.children import Job
from paddle_operator.plan.endpoints import PORTS_PER_JOB


class PortBlocks:
    """With `for_every_job` also jobs that do not use the nodes' network get a block: where all pods are on one machine,
    Paddle's masters, which listen on every address, would otherwise clash on the one port that all jobs use.
    """

    def __init__(
        self, blocks: Sequence[int], is_free: Callable[[int], bool] | None = None, *, for_every_job: bool = False
    ) -> None:
        self._blocks = blocks  # the first port of each, in the order of preference
        self._is_free = is_free or (lambda _: True)
        self._for_every_job = for_every_job
        self._promised: dict[str, int] = {}  # by uid; not yet seen on the job
        self._heeded: list[Iterable[Job]] = []
        self._in_vain: set[str] = set()  # UIDs of the jobs that asked while no block was free
        self._listeners: list[Callable[[Collection[str]], None]] = []

    @classmethod
    def of(cls, ports: range) -> "PortBlocks":
        return cls(blocks_of(ports))

    def register(self, jobs: Iterable[Job]) -> None:
        """Blocks of these jobs are taken; more than one cache may be asked, since nodes know no namespaces."""
        self._heeded.append(jobs)

    def block_for(self, job: Job) -> int | None:
        """The first port of a block that no other live job has; the same one until the job shows it."""
        if not self._needs_block(job) or job.status.host_port is not None:
            self._promised.pop(job.uid, None)
            return None
        if job.uid not in self._promised:
            taken = {each.status.host_port for jobs in self._heeded for each in jobs if not each.finished} | set(
                self._promised.values()
            )
            free = next((first for first in self._blocks if first not in taken and self._is_free(first)), None)
            if free is None:
                self._in_vain.add(job.uid)
                return None
            self._promised[job.uid] = free
            self._in_vain.discard(job.uid)
        return self._promised[job.uid]

    def _needs_block(self, job: Job) -> bool:
        if job.spec is None or job.spec.suspend or not job.is_ours:
            return False
        return self._for_every_job or job.spec.intranet is Intranet.HOST

    def on_return(self, listener: Callable[[Collection[str]], None]) -> None:
        """Have it called with the UIDs of those that asked in vain, whenever a block may be free again."""
        self._listeners.append(listener)

    def give_back(self, uid: str) -> None:
        """This job is over or gone, and needs no block any more."""
        self._promised.pop(uid, None)
        self._in_vain.discard(uid)
        if waiting := tuple(self._in_vain):
            for listener in self._listeners:
                listener(waiting)


def blocks_of(ports: range) -> range:
    """The first port of each block that fits."""
    return range(ports.start, ports.stop - PORTS_PER_JOB + 1, PORTS_PER_JOB)
