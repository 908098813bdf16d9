"""Desired minus observed: the creates, patches and deletes that move a job towards its spec."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

from paddle_operator.api.paddlejob import Intranet, Role
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES
from paddle_operator.kube.writes import NAME_CONFLICT, Create, Delete, Patch, Write
from paddle_operator.plan.children import PodView
from paddle_operator.plan.clean_pod_policy import deletes, single_deletes
from paddle_operator.plan.endpoints import service_manifest
from paddle_operator.plan.job_view import PADDLE_JOBS, Job
from paddle_operator.plan.metadata import GO_FINALIZER, pod_key, pod_name
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_builder import PodBuilder
from paddle_operator.plan.pod_group import POD_GROUPS

# A pod on an unreachable node stays until the node is deleted. By then a live kubelet has killed it; otherwise its
# processes have lost their peers, which are replaced as well, and cannot join the new ones.
FORCE_DELETE_AFTER = timedelta(minutes=1)
MAX_PODS_PER_RECONCILE = 2000  # per role: the status is written between two reconciles
MAX_QUICK_WRITES = 32  # so few writes need no status of their own


def waves(*steps: Iterable[Write]) -> tuple[tuple[Write, ...], ...]:
    return tuple(wave for step in steps if (wave := tuple(step)))


def go_finalizer_patches(job: Job) -> list[Write]:
    """Remove the Go operator's finalizer: without an operator it would block the deletion of the job."""
    if GO_FINALIZER not in job.metadata.finalizers:
        return []
    others = [each for each in job.metadata.finalizers if each != GO_FINALIZER]
    metadata = {"finalizers": others, "resourceVersion": job.metadata.resource_version}
    return [Patch(PADDLE_JOBS, job.key, job.uid, {"metadata": metadata})]


def obsolete_deletes(observed: ObservedJob) -> Iterator[Write]:
    """The barrier of an earlier attempt, and pods of one or beyond the replicas, the highest index first."""
    barrier, pods = observed.barrier, observed.obsolete_pods
    if barrier and not observed.released and not barrier.terminating:
        yield Delete(CONFIG_MAPS, barrier.key, barrier.uid)
    is_restart = len(pods) == len(observed.children.pods)  # then one request can delete them all
    yield from deletes(observed.job, PODS, pods) if is_restart else single_deletes(PODS, pods)
    desired = observed.positions if observed.spec.intranet is Intranet.SERVICE else {}
    for each in observed.children.services:
        if each.created_by_us and not each.terminating and each.name not in desired:
            yield Delete(SERVICES, each.key, each.uid)


def stuck_terminating(observed: ObservedJob, now: datetime) -> list[PodView]:
    """Pods that terminate for longer than a live kubelet would let them."""
    stuck = [pod for pod in observed.obsolete_pods if (until := _force_delete_at(pod)) and now >= until]
    return sorted(stuck, key=lambda pod: pod.name)


def next_force_delete(observed: ObservedJob, now: datetime) -> datetime | None:
    times = (_force_delete_at(pod) for pod in observed.obsolete_pods)
    return min((time for time in times if time and time > now), default=None)


def _force_delete_at(pod: PodView) -> datetime | None:
    """None for a pod that has ended or never had a node: it has no process, and a finalizer holds it."""
    return pod.terminates_by + FORCE_DELETE_AFTER if pod.terminates_by and pod.node and not pod.finished else None


def force_deletes(pods: Iterable[PodView]) -> list[Write]:
    return [Delete(PODS, pod.key, pod.uid, force=True) for pod in pods]


def service_creates(observed: ObservedJob, now: datetime) -> list[Write]:
    job = observed.job
    positions = _not_refused(observed, SERVICES.plural, observed.missing_services, now)
    return [
        Create(SERVICES, pod_key(job.key, role, index), partial(service_manifest, job, role, index))
        for role, index in positions[:MAX_PODS_PER_RECONCILE]
    ]


def pod_creates(observed: ObservedJob, etcd: str, now: datetime, *, gang: bool = False) -> Iterator[list[Write]]:
    """A wave for each role: servers, workers, then others."""
    job = observed.job
    positions = _not_refused(observed, PODS.plural, observed.missing, now)
    if not positions:
        return
    names_in_use = {pod.name for pod in observed.obsolete_pods}
    for role, part in observed.spec.roles.items():
        builder = PodBuilder(job, role, part, etcd=etcd, gang=gang)
        indexes = [
            index for each, index in positions if each is role and pod_name(job.key, role, index) not in names_in_use
        ]
        yield [
            Create(PODS, pod_key(job.key, role, index), partial(builder.build, index))
            for index in indexes[:MAX_PODS_PER_RECONCILE]
        ]
        if len(indexes) > MAX_PODS_PER_RECONCILE:
            return  # the events of these pods cause the next reconcile, which creates the rest


def _not_refused(
    observed: ObservedJob, kind: str, positions: list[tuple[Role, int]], now: datetime
) -> list[tuple[Role, int]]:
    """Without refused objects until their back-off is over.

    Any refusal other than a name conflict holds back the whole kind: with an exhausted quota, thousands of pods would
    otherwise be requested every minute.
    """
    refused = observed.active_refusals(kind, now)
    if any(reason != NAME_CONFLICT for reason in refused.values()):
        return []
    if not refused:
        return positions
    return [position for position in positions if pod_key(observed.job.key, *position) not in refused]


def group_is_refused(observed: ObservedJob, now: datetime) -> bool:
    return observed.job.key in observed.active_refusals(POD_GROUPS.plural, now)
