"""Our kinds as the API server spells them, and what is read of an object before its rules are asked."""

import msgspec

from paddle_operator.api.paddlejob import API_VERSION, PLURAL, Unfit, read_spec, read_status
from paddle_operator.kube.objects import Object, Resource
from paddle_operator.plan.views import Job


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
        return Job(metadata, known.spec, status, known.problems)
    try:
        return Job(stored.metadata, read_spec(bytes(stored.spec), stored.metadata.name), status)
    except Unfit as unfit:
        return Job(stored.metadata, None, status, unfit.problems)
