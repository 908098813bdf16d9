"""The spec of a PaddleJob. The strings below the fields are their descriptions in CRDs and docs.

The fields are those of the Go operator, with the defaults and valid values that it never documented.
"""

from enum import StrEnum
from typing import Any, Self

import msgspec

from paddle_operator.api.meta import Fields


class Role(StrEnum):
    """The roles of a job, always in this order."""

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
    """Whether a failure with a matching exit code fails the job, or is retried and counted, or only retried."""

    FAIL_JOB = "FailJob"
    COUNT = "Count"
    IGNORE = "Ignore"


class ExitCodeOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"


class RoleSpec(Fields, frozen=True):
    """One role of a job: its replicas and its pod template."""

    replicas: int
    """How many pods this role has, from 1 to 10000. Leave out a role that is not needed."""
    template: dict[str, Any]
    """A PodTemplateSpec as in a Deployment; every pod of the role is created from it."""
    requests: int | None = None
    """The minimum number of pods of an elastic job. 0 is the same as leaving it out."""
    limits: int | None = None
    """The maximum number of pods of an elastic job. 0 is the same as leaving it out."""


class SchedulingPolicy(Fields, frozen=True):
    """How a gang scheduler such as Volcano schedules the job."""

    min_available: int | None = None
    """How many pods must be schedulable before the job starts. Left out, all of them; Paddle needs all of them."""
    queue: str = ""
    """The queue of the job."""
    priority_class: str = ""
    """The PriorityClass of the job."""
    min_resources: dict[str, int | float | str] = {}  # noqa: RUF012  # msgspec copies it
    """The resources that must be free before the job starts. Left out, the sum over all pods."""


class ExitCodes(Fields, frozen=True):
    """Exit codes of the main container: the one named paddle, else the first."""

    operator: ExitCodeOperator
    """In: the code is one of the values. NotIn: it is none of them."""
    values: tuple[int, ...]
    """From 1 to 255. A signal shows as 128 and its number, under paddle.distributed.launch as 256 less its number."""


class FailureRule(Fields, frozen=True):
    """The action for pods that fail with certain exit codes."""

    action: FailureAction
    """FailJob fails the job at once, Count retries and counts the failure, Ignore retries without counting it."""
    on_exit_codes: ExitCodes
    """The exit codes that the rule matches."""


class PodFailurePolicy(Fields, frozen=True):
    """Which failures are retried."""

    rules: tuple[FailureRule, ...]
    """From 1 to 20 rules; the first match wins. If none matches, exit code 2 (a bad command line) fails the job and
    every other code is retried and counted."""


class SuccessRule(Fields, frozen=True):
    """Which workers must succeed."""

    succeeded_indexes: str = ""
    """The indexes of the workers that must succeed, such as 0 for the chief alone, or 0-3. Left out, all workers."""
    succeeded_count: int | None = None
    """How many of these workers must succeed. Left out, all of them."""


class SuccessPolicy(Fields, frozen=True):
    """When the job is completed."""

    rules: tuple[SuccessRule, ...]
    """One rule. When it is met the job is Completed, and running pods are stopped."""


class PaddleJobSpec(Fields, frozen=True):
    """The desired state of the job."""

    suspend: bool = False
    """True deletes the pods and retains the job; false starts it again. A finished job is not affected."""
    backoff_limit: int | None = None
    """How many times the job is retried after a failure. Left out, the first failed pod fails the job. Preemption,
    eviction and the loss of a node do not count. The back-off is 10 s, then 20 s, at most 6 minutes."""
    pod_failure_policy: PodFailurePolicy | None = None
    """Which exit codes are retried; requires backoffLimit."""
    active_deadline_seconds: int | None = None
    """How long the job may take, retries and back-off included; then it fails. Suspended time does not count."""
    start_deadline_seconds: int | None = None
    """How long each attempt may take until every pod has started; then the job fails with the reason."""
    ttl_seconds_after_finished: int | None = None
    """How long a finished job is retained before it is deleted with all its objects. Left out, forever."""
    success_policy: SuccessPolicy | None = None
    """Which workers must succeed. Left out, all of them."""
    managed_by: str = ""
    """The controller that manages this job, if not this operator, which then ignores the job. Immutable."""
    clean_pod_policy: CleanPodPolicy | None = None
    """Whether the pods of a finished job are deleted: Always, Never, OnFailure or OnCompletion. Left out, it acts as
    OnCompletion. OnFailed is an old spelling of OnFailure."""
    clean_policy: CleanPodPolicy | None = None
    """Deprecated name of cleanPodPolicy, which takes precedence if both are set."""
    intranet: Intranet = Intranet.POD_IP
    """How the pods of a job reach each other: PodIP, Service (a headless Service for each pod) or Host (the network of
    the nodes)."""
    with_gloo: int | None = None
    """Paddle's gloo: 0 is off, 1 is for workers, 2 is for workers and servers. Left out, it is 1 where the job has
    parameter servers, and otherwise 0."""
    elastic: int | None = None
    """1 makes the number of workers elastic during training. Left out or 0, it is fixed."""
    scheduling_policy: SchedulingPolicy | None = None
    """How a gang scheduler schedules the job."""
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
        """The roles that the job has, in order."""
        every = {Role.PS: self.ps, Role.WORKER: self.worker, Role.HETER: self.heter}
        return {role: spec for role, spec in every.items() if spec is not None}

    @property
    def total(self) -> int:
        """How many pods the job has."""
        return sum(role.replicas for role in (self.ps, self.worker, self.heter) if role)  # read at every pod event

    @property
    def mode(self) -> Mode:
        if self.ps is not None:
            return Mode.PS
        return Mode.COLLECTIVE if self.worker is not None and self.worker.replicas > 1 else Mode.SINGLE

    @property
    def gloo(self) -> int:
        """On by default for jobs with parameter servers: without gloo they train wrongly, without an error."""
        if self.with_gloo is not None:
            return self.with_gloo
        return 1 if self.mode is Mode.PS else 0

    @property
    def is_elastic(self) -> bool:
        return bool(self.elastic)

    def cleans(self, phase: str) -> bool:
        """Whether the pods of a job that finished with this phase are deleted."""
        if phase == Phase.FAILED:
            return self.clean_pod_policy in (CleanPodPolicy.ALWAYS, CleanPodPolicy.ON_FAILURE)
        return phase == Phase.COMPLETED and self.clean_pod_policy in (
            None,
            CleanPodPolicy.ALWAYS,
            CleanPodPolicy.ON_COMPLETION,
        )
