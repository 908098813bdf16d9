"""What a user writes under `spec` of a PaddleJob. The texts below the fields are their descriptions in CRDs and docs.

The fields are those of the Go operator; what it never wrote down (defaults, which values count) is written down here.
"""

from enum import StrEnum
from typing import Any, Self

import msgspec

from paddle_operator.api.meta import Fields


class Role(StrEnum):
    """The parts of a job, always in this order."""

    PS = "ps"
    WORKER = "worker"
    HETER = "heter"


class Intranet(StrEnum):
    POD_IP = "PodIP"
    SERVICE = "Service"
    HOST = "Host"


OLD_SPELLINGS = {"OnFailed": "OnFailure"}  # the Go operator's own example deepfm.yaml has it


class CleanPodPolicy(StrEnum):
    ALWAYS = "Always"
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ON_COMPLETION = "OnCompletion"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(OLD_SPELLINGS[value]) if isinstance(value, str) and value in OLD_SPELLINGS else None


class Mode(StrEnum):
    PS = "PS"
    COLLECTIVE = "Collective"
    SINGLE = "Single"


class Phase(StrEnum):
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATING = "Terminating"


class FailureAction(StrEnum):
    """What a failure with such an exit code brings: the end of the job, or another try that counts, or does not."""

    FAIL_JOB = "FailJob"
    COUNT = "Count"
    IGNORE = "Ignore"


class ExitCodeOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"


class RoleSpec(Fields, frozen=True):
    """One role of a job: how many pods, and what they are made from."""

    replicas: int
    """How many pods this role has, from 1 to 10000. A role that is not wanted is left out."""
    template: dict[str, Any]
    """A PodTemplateSpec as in a Deployment; every pod of the role is made from it."""
    requests: int | None = None
    """The fewest pods with which an elastic job goes on. 0 is the same as leaving it out."""
    limits: int | None = None
    """The most pods that an elastic job can have. 0 is the same as leaving it out."""


class SchedulingPolicy(Fields, frozen=True):
    """How a gang scheduler such as Volcano is to treat the job as a whole."""

    min_available: int | None = None
    """With how many pods the job may start; all of them, where this is left out, and Paddle needs all of them."""
    queue: str = ""
    """The queue that the job stands in."""
    priority_class: str = ""
    """The PriorityClass of the job as a whole."""
    min_resources: dict[str, int | float | str] = {}  # noqa: RUF012  # msgspec copies it
    """What must be free before the job may start; the sum over all pods, where this is left out."""


class ExitCodes(Fields, frozen=True):
    """Exit codes of the container that trains: the one named paddle, else the first."""

    operator: ExitCodeOperator
    """In: the code is one of the values. NotIn: it is none of them."""
    values: tuple[int, ...]
    """From 1 to 255. A signal shows as 128 and its number, under paddle.distributed.launch as 256 less its number."""


class FailureRule(Fields, frozen=True):
    """What to do about a pod that failed with certain exit codes."""

    action: FailureAction
    """FailJob ends the job at once, Count tries again and counts it, Ignore tries again and does not count it."""
    on_exit_codes: ExitCodes
    """The exit codes that the rule is about."""


class PodFailurePolicy(Fields, frozen=True):
    """Which failures are worth another try."""

    rules: tuple[FailureRule, ...]
    """From 1 to 20; the first that fits decides. Where none does, 2 (a bad command line) fails the job and every other
    code counts."""


class SuccessRule(Fields, frozen=True):
    """Which workers must have succeeded."""

    succeeded_indexes: str = ""
    """The workers that matter, such as 0 for the chief alone, or 0-3. Left out, all of them matter."""
    succeeded_count: int | None = None
    """How many of those that matter must have succeeded. Left out, all of them."""


class SuccessPolicy(Fields, frozen=True):
    """When the job is done."""

    rules: tuple[SuccessRule, ...]
    """One rule. When it is met the job is Completed, and pods that still run are ended."""


class PaddleJobSpec(Fields, frozen=True):
    """What to run."""

    suspend: bool = False
    """True ends the pods and keeps the job; false lets it start again, afresh. A finished job is not touched."""
    backoff_limit: int | None = None
    """How many times the job is tried again after a failure. Left out, the first failed pod fails the job. Preemption,
    eviction and the loss of a node do not count. The pause before each try is 10 s, then 20 s, at most 6 minutes."""
    pod_failure_policy: PodFailurePolicy | None = None
    """Which exit codes are worth another try; needs backoffLimit."""
    active_deadline_seconds: int | None = None
    """How long the job may take, tries and pauses together; then it fails. While it is suspended, no time passes."""
    start_deadline_seconds: int | None = None
    """How long the job may wait until every pod has started, at each try; then it fails and says what it waited for."""
    ttl_seconds_after_finished: int | None = None
    """When the finished job itself is deleted, with everything that is left of it. Left out, never."""
    success_policy: SuccessPolicy | None = None
    """Which workers must have succeeded. Left out, all of them."""
    managed_by: str = ""
    """The controller that looks after this job, where it is another one than this operator, which then leaves it alone.
    Cannot be changed."""
    clean_pod_policy: CleanPodPolicy | None = None
    """Whether the pods of a finished job are deleted: Always, Never, OnFailure or OnCompletion. Left out, it acts as
    OnCompletion. OnFailed is an old spelling of OnFailure."""
    clean_policy: CleanPodPolicy | None = None
    """An old spelling of cleanPodPolicy, which counts where both are written."""
    intranet: Intranet = Intranet.POD_IP
    """How the pods of a job reach each other: PodIP, Service (a headless Service for each pod) or Host (the network of
    the nodes)."""
    with_gloo: int | None = None
    """Paddle's gloo: 0 is off, 1 is for workers, 2 is for workers and servers. Left out, it is 1 where the job has
    parameter servers, and otherwise 0."""
    elastic: int | None = None
    """1 lets the number of workers change while they train. Left out or 0, it is fixed."""
    scheduling_policy: SchedulingPolicy | None = None
    """How a gang scheduler is to treat the job."""
    ps: RoleSpec | None = None
    """The parameter servers."""
    worker: RoleSpec | None = None
    """The workers, which train."""
    heter: RoleSpec | None = None
    """The workers on other devices, for Paddle's heterogeneous training."""

    def __post_init__(self) -> None:
        if self.clean_pod_policy is None and self.clean_policy is not None:
            msgspec.structs.force_setattr(self, "clean_pod_policy", self.clean_policy)

    @property
    def roles(self) -> dict[Role, RoleSpec]:
        """Those that the job has, in order."""
        every = {Role.PS: self.ps, Role.WORKER: self.worker, Role.HETER: self.heter}
        return {role: spec for role, spec in every.items() if spec is not None}

    @property
    def total(self) -> int:
        """How many pods the job has."""
        return sum(role.replicas for role in (self.ps, self.worker, self.heter) if role)  # asked at every pod's change

    @property
    def mode(self) -> Mode:
        if self.ps is not None:
            return Mode.PS
        return Mode.COLLECTIVE if self.worker is not None and self.worker.replicas > 1 else Mode.SINGLE

    @property
    def gloo(self) -> int:
        """Without gloo, a job with parameter servers trains wrongly and says nothing: so it is on unless put off."""
        if self.with_gloo is not None:
            return self.with_gloo
        return 1 if self.mode is Mode.PS else 0

    @property
    def is_elastic(self) -> bool:
        return bool(self.elastic)

    def cleans(self, phase: str) -> bool:
        """Whether the pods of a job that has come to this phase are to be deleted."""
        if phase == Phase.FAILED:
            return self.clean_pod_policy in (CleanPodPolicy.ALWAYS, CleanPodPolicy.ON_FAILURE)
        return phase == Phase.COMPLETED and self.clean_pod_policy in (
            None,
            CleanPodPolicy.ALWAYS,
            CleanPodPolicy.ON_COMPLETION,
        )
