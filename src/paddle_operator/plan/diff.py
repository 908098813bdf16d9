"""The difference between what is wanted and what is there: Create, Patch, Delete, wave after wave."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from paddle_operator.api.paddlejob import Intranet, Role
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Resource
from paddle_operator.kube.writes import NAME_CONFLICT, Create, Delete, Patch, Write
from paddle_operator.plan.children import Job, PodView
from paddle_operator.plan.clean_pod_policy import deletes, single_deletes
from paddle_operator.plan.endpoints import service
from paddle_operator.plan.job_view import PADDLE_JOBS
from paddle_operator.plan.metadata import ENDPOINTS_ANNOTATION, GO_FINALIZER, pod_key, pod_name
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_builder import PodBuilder, config_map
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.rendezvous_env import RendezvousEnv
from paddle_operator.plan.status import BARRIER_WAIT_REASON

# A pod on a node that does not answer stays until the node is gone. By then kubelet, if it lives, has killed it long
# ago; if not, whatever runs there has lost its peers, which are replaced as well, and it cannot join the new ones.
FORCE_DELETE_AFTER = timedelta(minutes=1)
MAX_PODS_PER_RECONCILE = 2000  # pods that one pass makes: between two of them the counters are told
MAX_QUICK_WRITES = 32  # writes that are soon done: not worth a status of their own


def waves(*steps: Iterable[Write]) -> tuple[tuple[Write, ...], ...]:
    return tuple(wave for step in steps if (wave := tuple(step)))


def go_finalizer_patches(job: Job) -> list[Write]:
    """The Go operator's, which would keep a job from going while no operator is there to take it off."""
    if GO_FINALIZER not in job.metadata.finalizers:
        return []
    others = [each for each in job.metadata.finalizers if each != GO_FINALIZER]
    metadata = {"finalizers": others, "resourceVersion": job.metadata.resource_version}
    return [Patch(PADDLE_JOBS, job.key, job.uid, {"metadata": metadata})]


def obsolete_deletes(observed: ObservedJob) -> Iterator[Write]:
    """Pods of an earlier attempt or beyond the wanted number, the highest first; the barrier that belongs to them."""
    barrier = observed.barrier
    if barrier and not observed.released and not barrier.terminating:
        yield Delete(CONFIG_MAPS, barrier.key, barrier.uid)
    alone = len(observed.obsolete_pods) == len(observed.children.pods)  # a restart replaces them all
    yield from (
        deletes(observed.job, PODS, observed.obsolete_pods) if alone else single_deletes(PODS, observed.obsolete_pods)
    )
    wanted = observed.positions if observed.spec.intranet is Intranet.SERVICE else {}
    for each in observed.children.services:
        if each.ours and not each.terminating and each.name not in wanted:
            yield Delete(SERVICES, each.key, each.uid)


def stuck_terminating(observed: ObservedJob, now: datetime) -> list[PodView]:
    """Pods that hold a name for longer than a kubelet that lives would let them."""
    late = [pod for pod in observed.obsolete_pods if (until := _force_delete_at(pod)) and now >= until]
    return sorted(late, key=lambda pod: pod.name)


def next_force_delete(observed: ObservedJob, now: datetime) -> datetime | None:
    return min(
        (until for pod in observed.obsolete_pods if (until := _force_delete_at(pod)) and until > now), default=None
    )


def _force_delete_at(pod: PodView) -> datetime | None:
    """Of one that has ended, or never had a node, no process is left: somebody's finalizer holds it."""
    return pod.terminates_by + FORCE_DELETE_AFTER if pod.terminates_by and pod.node and not pod.finished else None


def force_deletes(pods: Iterable[PodView]) -> list[Write]:
    return [Delete(PODS, pod.key, pod.uid, force=True) for pod in pods]


def service_creates(observed: ObservedJob, now: datetime) -> list[Write]:
    free = _not_refused(observed, SERVICES.plural, observed.missing_services, now)
    job = observed.job
    return [
        Create(SERVICES, pod_key(job.key, role, index), partial(service, job, role, index))
        for role, index in free[:MAX_PODS_PER_RECONCILE]
    ]


def pod_creates(observed: ObservedJob, etcd: str, now: datetime, *, gang: bool = False) -> Iterator[list[Write]]:
    """Servers, workers and others, a role at a time."""
    free = _not_refused(observed, PODS.plural, observed.missing, now)
    if not free:
        return
    taken = {pod.name for pod in observed.obsolete_pods}
    for role, wanted in observed.spec.roles.items():
        maker = PodBuilder(observed.job, role, wanted, etcd=etcd, gang=gang)
        positions = [index for each, index in free if each is role]
        indexes = [index for index in positions if pod_name(observed.job.key, role, index) not in taken]
        yield [
            Create(PODS, pod_key(observed.job.key, role, index), partial(maker.pod, index))
            for index in indexes[:MAX_PODS_PER_RECONCILE]
        ]
        if len(indexes) > MAX_PODS_PER_RECONCILE:
            return  # the echo of these brings the next pass, and the next roles come after this one


def _not_refused(
    observed: ObservedJob, kind: str, positions: list[tuple[Role, int]], now: datetime
) -> list[tuple[Role, int]]:
    """What the API server refused is not sent again before its time, nor is what it would refuse as well: where a
    quota is used up, thousands of pods would otherwise ask for it every minute.
    """
    held = _held(observed, kind, now)
    if any(reason != NAME_CONFLICT for reason in held.values()):
        return []
    return [place for place in positions if pod_key(observed.job.key, *place) not in held] if held else positions


def _held(observed: ObservedJob, kind: str, now: datetime) -> dict[Key, str]:
    return {each.key: each.reason for each in observed.refusals if each.kind == kind and each.retry_at > now}


def barrier_creates(observed: ObservedJob, shared: RendezvousEnv, now: datetime) -> list[Write]:
    """As soon as every address is known. Pods that the Go operator made know nothing of what it would say."""
    if not all(pod.ours for pod in observed.pods()) or barrier_is_refused(observed, now):
        return []
    return [Create(CONFIG_MAPS, observed.job.key, partial(config_map, observed.job, shared))]


def required_names(observed: ObservedJob, pods: list[list[Write]]) -> tuple[tuple[Resource[Any], Key], ...]:
    """A ConfigMap of somebody else, perhaps of a job of this name that was deleted a moment ago, would let containers
    start with what it says: while there is one, no pod is made.
    """
    return ((CONFIG_MAPS, observed.job.key),) if any(pods) and not observed.spec.is_elastic else ()


def barrier_is_refused(observed: ObservedJob, now: datetime) -> bool:
    return observed.job.key in _held(observed, CONFIG_MAPS.plural, now)


def group_is_refused(observed: ObservedJob, now: datetime) -> bool:
    return observed.job.key in _held(observed, POD_GROUPS.plural, now)


def kubelet_nudges(observed: ObservedJob, digest: str) -> list[Write]:
    """Whoever waits for the barrier is woken, since kubelet looks only now and then: 0.1 s instead of up to 13."""
    change = {"metadata": {"annotations": {ENDPOINTS_ANNOTATION: digest}}}
    return [
        Patch(PODS, pod.key, pod.uid, change)
        for pod in observed.pods()
        if pod.waiting == BARRIER_WAIT_REASON and pod.nudged_for != digest
    ]
