"""What remains of a finished job: nothing but its ConfigMap, or everything, but standing still. Of a suspended one
nothing remains.

A pod that is kept and still runs gets a deadline of one second: kubelet ends it within 0.6 s, and object, exit code and
log stay. So no pod of a finished job goes on holding a GPU.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from paddle_operator.api.paddlejob import PaddleJobSpec
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Resource
from paddle_operator.kube.writes import Delete, DeleteAll, Patch, Write
from paddle_operator.plan.children import Children, ChildView, Job, PodView
from paddle_operator.plan.metadata import JOB_UID_LABEL
from paddle_operator.plan.scheduling_policy import group_deletes

MAX_SINGLE_DELETES = 2  # deleted one by one; more of them in one request


def cleanup_writes(job: Job, spec: PaddleJobSpec, children: Children, phase: str) -> Iterator[Write]:
    yield from group_deletes(job, children.group)
    if spec.cleans(phase):
        yield from deletes(job, PODS, children.pods)
        yield from deletes(job, SERVICES, children.services)
    else:
        yield from _stopped(children.pods)


def child_deletes(job: Job, children: Children) -> Iterator[Write]:
    """For a while without pods: the barrier goes as well, so that nobody starts with the addresses of before."""
    yield from group_deletes(job, children.group)
    yield from deletes(job, PODS, children.pods)
    yield from deletes(job, SERVICES, children.services)
    yield from single_deletes(CONFIG_MAPS, children.config_maps)


def deletes(job: Job, kind: Resource[Any], children: Iterable[PodView | ChildView]) -> Iterator[Write]:
    """All children of a kind, the highest index first where they go one by one."""
    there = [child for child in children if not child.terminating]
    if len(there) > MAX_SINGLE_DELETES and all(child.ours for child in there):
        yield DeleteAll(kind, job.key.namespace, f"{JOB_UID_LABEL}={job.uid}")
    else:
        yield from single_deletes(kind, there)


def single_deletes(kind: Resource[Any], children: Iterable[PodView | ChildView]) -> Iterator[Write]:
    for child in sorted(children, key=lambda child: (len(child.name), child.name), reverse=True):
        if not child.terminating:
            yield Delete(kind, child.key, child.uid)


def _stopped(pods: Iterable[PodView]) -> Iterator[Write]:
    for pod in pods:
        if pod.finished or pod.terminating:
            continue
        if not pod.started:  # nothing of it is worth keeping, and it must not start now
            yield Delete(PODS, pod.key, pod.uid)
        elif pod.deadline_seconds is None or pod.deadline_seconds > 1:
            yield Patch(PODS, pod.key, pod.uid, {"spec": {"activeDeadlineSeconds": 1}})
