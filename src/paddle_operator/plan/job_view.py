"""A PaddleJob as the planner reads it, and what the cache stores of it.

The raw spec and status are decoded here, so an object that breaks the rules still reaches the planner.
"""

import msgspec

from paddle_operator.api.paddlejob import (
    API_VERSION,
    MANAGER,
    PLURAL,
    InvalidSpec,
    PaddleJobSpec,
    PaddleJobStatus,
    Phase,
    manager_of,
    read_spec,
    read_status,
)
from paddle_operator.kube.objects import PrimaryView, Resource, StoredObject
from paddle_operator.kube.writes import Plan

JobPlan = Plan[PaddleJobStatus]


class Job(PrimaryView, frozen=True):
    """A PaddleJob; `spec` is None if the stored one breaks the rules, and `problems` says which."""

    spec: PaddleJobSpec | None
    status: PaddleJobStatus
    problems: tuple[str, ...] = ()
    managed_by: str = ""  # only if spec is None: an invalid job of another controller is not ours either

    @property
    def is_ours(self) -> bool:
        """Whether this operator manages it; also if the manager itself cannot be read, to report that."""
        return (self.spec.managed_by if self.spec else self.managed_by) in ("", MANAGER)

    @property
    def finished(self) -> bool:
        return self.status.phase in (Phase.COMPLETED, Phase.FAILED)


PADDLE_JOBS = Resource(f"apis/{API_VERSION}", PLURAL, StoredObject)


def job_view(stored: StoredObject, cached: Job | None = None) -> Job:
    """Decode a job. If the generation is the cached one, as in most watch events, only the status is decoded."""
    status = read_status(bytes(stored.status))
    metadata = stored.metadata
    if cached and (cached.uid, cached.metadata.generation) == (metadata.uid, metadata.generation):
        return Job(metadata, cached.spec, status, cached.problems, cached.managed_by)
    try:
        return Job(stored.metadata, read_spec(bytes(stored.spec), stored.metadata.name), status)
    except InvalidSpec as error:
        return Job(stored.metadata, None, status, error.problems, manager_of(bytes(stored.spec)))


def cached_job_view(stored: StoredObject, cached: Job | None = None) -> Job:
    """What the operator's cache stores of a job.

    Templates and kubectl's annotation are most of a job. A finished job is stored without them, so thousands of
    finished jobs cost next to nothing.
    """
    job = job_view(stored, None if cached and cached.finished else cached)
    metadata = msgspec.structs.replace(job.metadata, annotations={}, labels={})
    if not job.finished or job.spec is None:
        return msgspec.structs.replace(job, metadata=metadata)
    status = PaddleJobStatus(
        phase=job.status.phase,
        completion_time=job.status.completion_time,
        observed_generation=job.status.observed_generation,
    )
    return Job(metadata, _without_templates(job.spec), status)


def _without_templates(spec: PaddleJobSpec) -> PaddleJobSpec:
    roles = {str(role): msgspec.structs.replace(part, template={}) for role, part in spec.roles.items()}
    return msgspec.structs.replace(spec, scheduling_policy=None, pod_failure_policy=None, **roles)
