"""Names, labels, annotations and the owner reference of a job's objects.

Names, `paddle-*` labels and the `paddle-resource` annotation are the Go operator's, so that its users' scripts and
dashboards keep working; ours have the group's prefix.
"""

from typing import Any

from paddle_operator.api.paddlejob import API_VERSION, GROUP, KIND, PaddleJobSpec, Role
from paddle_operator.kube.objects import Key
from paddle_operator.plan.job_view import Job

POD_NAME_LABEL = "paddle-res-name"
ROLE_LABEL = "paddle-res-type"
ROLE_ANNOTATION = "paddle-resource"
MAIN_CONTAINER = "paddle"

JOB_UID_LABEL = f"{GROUP}/job-uid"  # one request with this selector deletes all pods of a job
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
REPLICAS_ANNOTATION = f"{GROUP}/replicas"
ENDPOINTS_ANNOTATION = f"{GROUP}/contract"  # the digest of the endpoints, on the barrier and on nudged pods

GO_FINALIZER = "finalizers.paddlepaddle.org"


def pod_name(job: Key, role: Role, index: int) -> str:
    return f"{job.name}-{role}-{index}"


def pod_key(job: Key, role: Role, index: int) -> Key:
    return Key(job.namespace, pod_name(job, role, index))


def owner_reference(job: Job) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def replicas_text(spec: PaddleJobSpec) -> str:
    """`ps=2,worker=4`: the replicas for which a barrier was written."""
    return ",".join(f"{role}={part.replicas}" for role, part in spec.roles.items())
