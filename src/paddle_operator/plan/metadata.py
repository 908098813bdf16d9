"""What our objects are called, and the marks by which we know them again.

Names, `paddle-*` labels and the `paddle-resource` annotation are the Go operator's, so that scripts and dashboards of
its users go on working; marks of our own have the group's prefix.
"""

from paddle_operator.api.paddlejob import GROUP, Role
from paddle_operator.kube.objects import Key

POD_NAME_LABEL = "paddle-res-name"
ROLE_LABEL = "paddle-res-type"
ROLE_ANNOTATION = "paddle-resource"
MAIN_CONTAINER = "paddle"

JOB_UID_LABEL = f"{GROUP}/job-uid"  # lets one request delete all pods of a job
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
REPLICAS_ANNOTATION = f"{GROUP}/replicas"
ENDPOINTS_ANNOTATION = f"{GROUP}/contract"

GO_FINALIZER = "finalizers.paddlepaddle.org"


def pod_name(job: Key, role: Role, index: int) -> str:
    return f"{job.name}-{role}-{index}"


def pod_key(job: Key, role: Role, index: int) -> Key:
    return Key(job.namespace, pod_name(job, role, index))
