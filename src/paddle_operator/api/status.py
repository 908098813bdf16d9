"""What the operator answers under `status` of a PaddleJob. The texts below the fields are descriptions, as in spec.py.

It stays small however many pods a job has: the Go operator listed them all, 318 KB for 1,000 workers.
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
    """Which of all pods that ever had the name."""
    kind: str = "Pod"
    """Always Pod."""
    api_version: str = "v1"
    """Always v1."""


class RoleStatus(Fields, frozen=True):
    """The pods of one role, counted."""

    replicas: int = 0
    """How many exist."""
    pending: int = 0
    """How many wait for a node, an image or the addresses of the others."""
    starting: int = 0
    """How many run with a container that is not ready."""
    running: int = 0
    """How many run with every container ready."""
    failed: int = 0
    """How many have failed."""
    succeeded: int = 0
    """How many have succeeded."""
    unknown: int = 0
    """How many are on a node that does not answer."""
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
    """What has become of it."""

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
    """What is true of the job, each with its reason."""
    start_time: datetime | None = None
    """When all pods ran for the first time."""
    completion_time: datetime | None = None
    """When the job was over."""
    observed_generation: int = 0
    """The newest generation of the job that the operator has acted upon."""
    host_port: int | None = None
    """The first port of the job's block, where intranet is Host."""
    attempt: int = 0
    """How many times all pods were replaced."""
    attempt_time: datetime | None = None
    """When they were replaced last."""
    restarts: int = 0
    """How many tries of backoffLimit are used up."""
    next_attempt_time: datetime | None = None
    """When pods are made again after the last failure."""
    root_failure: RootFailure | None = None
    """The pod whose failure ended the job or made it restart last. Left out where another reason did."""
    replacing: tuple[str, ...] = ()
    """UIDs of failed pods that are counted already and about to be replaced, each alone."""
    active_since: datetime | None = None
    """When the job was last resumed, if it was ever suspended."""
    active_seconds: int = 0
    """How long it had been active before it was last suspended."""
    selector: str = ""
    """Selects the workers' pods, for `kubectl scale` and autoscalers."""
    elastic: str = ""
    """Kept for old clients; never written."""

    @property
    def roles(self) -> dict[Role, RoleStatus]:
        """Those that were counted, in order."""
        every = {Role.PS: self.ps, Role.WORKER: self.worker, Role.HETER: self.heter}
        return {role: status for role, status in every.items() if status is not None}
