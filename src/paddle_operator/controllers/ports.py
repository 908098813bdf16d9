"""Which ports of the nodes belong to which job? Blocks of twenty, remembered on the jobs and learnt again from them.

No list of ours can know what else listens on a node: the ports are declared on the pods, so that the scheduler keeps
apart what would clash. The blocks keep two jobs of ours apart.
"""

from collections.abc import Iterable

from paddle_operator.api.paddlejob import Intranet
from paddle_operator.plan.network import PORTS_PER_JOB
from paddle_operator.plan.views import Job


class PortBlocks:
    def __init__(self, ports: range) -> None:
        self._blocks = range(ports.start, ports.stop - PORTS_PER_JOB + 1, PORTS_PER_JOB)
        self._promised: dict[str, int] = {}  # by uid; not yet seen on the job

    def block_for(self, job: Job, jobs: Iterable[Job]) -> int | None:
        """The first port of a block that no other live job has; the same one until the job shows it."""
        if job.spec is None or job.spec.intranet is not Intranet.HOST or job.status.host_port is not None:
            self._promised.pop(job.uid, None)
            return None
        if job.uid not in self._promised:
            taken = {each.status.host_port for each in jobs if not each.finished} | set(self._promised.values())
            free = next((first for first in self._blocks if first not in taken), None)
            if free is None:
                return None
            self._promised[job.uid] = free
        return self._promised[job.uid]

    def forget(self, uid: str) -> None:
        self._promised.pop(uid, None)
