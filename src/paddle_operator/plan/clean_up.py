"""What remains of a finished job: nothing but its ConfigMap, or everything, but standing still.

A pod that is kept and still runs gets a deadline of one second: kubelet ends it within 0.6 s, and object, exit code and
log stay. So no pod of a finished job goes on holding a GPU.
"""

from collections.abc import Iterable, Iterator

from paddle_operator.api.paddlejob import PaddleJobSpec
from paddle_operator.kube.objects import PODS, SERVICES
from paddle_operator.plan.names import JOB_UID_LABEL
from paddle_operator.plan.views import Children, Job, PodView
from paddle_operator.plan.writes import Delete, DeleteAll, Patch, Write

FEW = 2  # deleted one by one; more of them in one request


def clean_up(job: Job, spec: PaddleJobSpec, children: Children, phase: str) -> Iterator[Write]:
    if spec.cleans(phase):
        yield from removed(job, children.pods)
        yield from (Delete(SERVICES, each.key, each.uid) for each in children.services if not each.terminating)
    else:
        yield from _stopped(children.pods)


def removed(job: Job, pods: Iterable[PodView]) -> Iterator[Write]:
    """All pods of a job, the highest index first where they go one by one."""
    there = [pod for pod in pods if not pod.terminating]
    if len(there) > FEW and all(pod.ours for pod in there):
        yield DeleteAll(PODS, job.key.namespace, f"{JOB_UID_LABEL}={job.uid}")
    else:
        yield from one_by_one(there)


def one_by_one(pods: Iterable[PodView]) -> Iterator[Write]:
    for pod in sorted(pods, key=lambda pod: (len(pod.name), pod.name), reverse=True):
        if not pod.terminating:
            yield Delete(PODS, pod.key, pod.uid)


def _stopped(pods: Iterable[PodView]) -> Iterator[Write]:
    for pod in pods:
        if pod.finished or pod.terminating:
            continue
        if not pod.started:  # nothing of it is worth keeping, and it must not start now
            yield Delete(PODS, pod.key, pod.uid)
        elif pod.deadline_seconds is None or pod.deadline_seconds > 1:
            yield Patch(PODS, pod.key, pod.uid, {"spec": {"activeDeadlineSeconds": 1}})
