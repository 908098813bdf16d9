"""The status of a PaddleJob. The strings below the fields are their descriptions in CRDs and docs, as in spec.py.

Its size is bounded, however many pods a job has: the Go operator listed them all, 318 KB for 1,000 workers.
"""

from datetime import datetime

from paddle_operator.api.meta import Condition, Fields
from paddle_operator.api.spec import Role


class Reference(Fields, frozen=True, omit_defaults=False):
    """A pod of the job."""

    name: str
    """Its name."""
    namespace: str
    """The namespace of the job."""
    uid: str
    """Its UID."""
    kind: str = "Pod"
    """Always Pod."""
    api_version: str = "v1"
    """Always v1."""


class RoleStatus(Fields, frozen=True):
    """Counters of the pods of one role."""

    replicas: int = 0
    """How many exist."""
    pending: int = 0
    """How many wait for a node, an image or the addresses of their peers."""
    starting: int = 0
    """How many run with a container that is not ready."""
    running: int = 0
    """How many run with every container ready."""
    failed: int = 0
    """How many have failed."""
    succeeded: int = 0
    """How many have succeeded."""
    unknown: int = 0
    """How many are on an unreachable node."""
    refs: tuple[Reference, ...] = ()
    """The first 16 pods by index."""


class RootFailure(Fields, frozen=True):
    """The pod that failed first: what its peers ended with is a consequence."""

    pod: str
    """Its name."""
    role: str = ""
    """ps, worker or heter."""
    index: int = 0
    """Its index within the role."""
    exit_code: int | None = None
    """The exit code of its container, where one is known."""
    reason: str = ""
    """The reason given by kubelet or by the controller that evicted it, such as OOMKilled."""
    container: str = ""
    """The container that failed, where it is not the one that trains."""


class PaddleJobStatus(Fields, frozen=True):
    """The observed state of the job."""

    phase: str = ""
    """Pending, Starting, Running, Restarting, Suspended, Completed, Failed or Terminating."""
    mode: str = ""
    """PS, Collective or Single."""
    ready: str = ""
    """How many pods run or have succeeded, of how many: 3/4."""
    ps: RoleStatus | None = None
    """The parameter servers."""
    worker: RoleStatus | None = None
    """The workers."""
    heter: RoleStatus | None = None
    """The workers on other devices."""
    conditions: tuple[Condition, ...] = ()
    """The conditions of the job."""
    start_time: datetime | None = None
    """When all pods ran for the first time."""
    completion_time: datetime | None = None
    """When the job completed or failed."""
    observed_generation: int = 0
    """The latest generation of the job that the operator has observed."""
    host_port: int | None = None
    """The first port of the job's block, where intranet is Host."""
    attempt: int = 0
    """How many times all pods were replaced: the number of the current attempt."""
    attempt_time: datetime | None = None
    """When the current attempt began."""
    restarts: int = 0
    """How many restarts count towards backoffLimit."""
    next_attempt_time: datetime | None = None
    """When pods are created again after the last failure."""
    root_failure: RootFailure | None = None
    """The pod whose failure ended the job or made it restart last. Left out where another reason did."""
    replacing: tuple[str, ...] = ()
    """UIDs of failed pods that are counted and will be replaced individually."""
    active_since: datetime | None = None
    """When the job was last resumed, if it was ever suspended."""
    active_seconds: int = 0
    """How long it had been active before it was last suspended."""
    selector: str = ""
    """Selects the workers' pods, for `kubectl scale` and autoscalers."""
    elastic: str = ""
    """Deprecated; never written."""

    @property
    def roles(self) -> dict[Role, RoleStatus]:
        """The roles that have counters, in order."""
        every = {Role.PS: self.ps, Role.WORKER: self.worker, Role.HETER: self.heter}
        return {role: status for role, status in every.items() if status is not None}
