"""spec.cleanPodPolicy: which objects of a finished job are deleted; of a suspended job, all of them.

A pod that is retained while it runs gets activeDeadlineSeconds 1: kubelet ends it within 0.6 s, and object, exit code
and log stay. So no pod of a finished job holds a GPU.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from paddle_operator.api.paddlejob import PaddleJobSpec
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Resource
from paddle_operator.kube.writes import Delete, DeleteAll, Patch, Write
from paddle_operator.plan.children import Children, ChildView, PodView
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import JOB_UID_LABEL
from paddle_operator.plan.scheduling_policy import group_deletes

MAX_SINGLE_DELETES = 2  # more objects of a kind are deleted by one request with a label selector


def cleanup_writes(job: Job, spec: PaddleJobSpec, children: Children, phase: str) -> Iterator[Write]:
    """Of a finished job: its ConfigMap always stays until the job is deleted."""
    yield from group_deletes(job, children.group)
    if spec.cleans(phase):
        yield from deletes(job, PODS, children.pods)
        yield from deletes(job, SERVICES, children.services)
    else:
        yield from _stop_writes(children.pods)


def child_deletes(job: Job, children: Children) -> Iterator[Write]:
    """Of a suspended job: the barrier too, so that no later pod starts with the addresses of earlier ones."""
    yield from group_deletes(job, children.group)
    yield from deletes(job, PODS, children.pods)
    yield from deletes(job, SERVICES, children.services)
    yield from single_deletes(CONFIG_MAPS, children.config_maps)


def deletes(job: Job, kind: Resource[Any], children: Iterable[PodView | ChildView]) -> Iterator[Write]:
    """All children of a kind; in single requests the highest index comes first."""
    remaining = [child for child in children if not child.terminating]
    if len(remaining) > MAX_SINGLE_DELETES and all(child.created_by_us for child in remaining):
        yield DeleteAll(kind, job.key.namespace, f"{JOB_UID_LABEL}={job.uid}")
    else:
        yield from single_deletes(kind, remaining)


def single_deletes(kind: Resource[Any], children: Iterable[PodView | ChildView]) -> Iterator[Write]:
    for child in sorted(children, key=lambda child: (len(child.name), child.name), reverse=True):
        if not child.terminating:
            yield Delete(kind, child.key, child.uid)


def _stop_writes(pods: Iterable[PodView]) -> Iterator[Write]:
    for pod in pods:
        if pod.finished or pod.terminating:
            continue
        if not pod.started:  # it has no log to retain, and must not start now
            yield Delete(PODS, pod.key, pod.uid)
        elif pod.deadline_seconds is None or pod.deadline_seconds > 1:
            yield Patch(PODS, pod.key, pod.uid, {"spec": {"activeDeadlineSeconds": 1}})
