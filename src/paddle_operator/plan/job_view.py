"""Our kinds as the API server spells them, and what is read of an object before its rules are asked."""

import msgspec

from paddle_operator.api.paddlejob import (
    API_VERSION,
    PLURAL,
    InvalidSpec,
    PaddleJobSpec,
    PaddleJobStatus,
    manager_of,
    read_spec,
    read_status,
)
from paddle_operator.kube.objects import Object, Resource
from paddle_operator.plan.children import Job


class StoredJob(Object, frozen=True):
    """As stored: an object that breaks the rules must reach us, too, so nothing is asked of it yet."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


PADDLE_JOBS = Resource(f"apis/{API_VERSION}", PLURAL, StoredJob)


def job_view(stored: StoredJob, known: Job | None = None) -> Job:
    """Where the spec is the one that is known already, only the status is read: that is most of what is heard."""
    status = read_status(bytes(stored.status))
    metadata = stored.metadata
    if known and (known.uid, known.metadata.generation) == (metadata.uid, metadata.generation):
        return Job(metadata, known.spec, status, known.problems, known.managed_by)
    try:
        return Job(stored.metadata, read_spec(bytes(stored.spec), stored.metadata.name), status)
    except InvalidSpec as unfit:
        return Job(stored.metadata, None, status, unfit.problems, manager_of(bytes(stored.spec)))


def cached_job_view(stored: StoredJob, known: Job | None = None) -> Job:
    """What the operator keeps of a job. Nothing runs of a finished one any more, so hardly anything is kept of it, and
    thousands of them cost next to nothing: templates and what kubectl noted in an annotation are most of a job.
    """
    job = job_view(stored, None if known and known.finished else known)
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
    bare = {str(role): msgspec.structs.replace(part, template={}) for role, part in spec.roles.items()}
    return msgspec.structs.replace(spec, scheduling_policy=None, pod_failure_policy=None, **bare)
