"""The difference between what is wanted and what is there: Create, Patch, Delete, wave after wave."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from paddle_operator.api.paddlejob import Intranet, Role
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key, Resource
from paddle_operator.kube.writes import NAME_CONFLICT, Create, Delete, Patch, Write
from paddle_operator.plan.children import Job, PodView
from paddle_operator.plan.clean_pod_policy import one_by_one, removed
from paddle_operator.plan.endpoints import service
from paddle_operator.plan.job_view import PADDLE_JOBS
from paddle_operator.plan.metadata import CONTRACT, GO_FINALIZER, pod_key, pod_name
from paddle_operator.plan.observed import ObservedJob
from paddle_operator.plan.pod_builder import PodMaker, config_map
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.rendezvous_env import RendezvousEnv
from paddle_operator.plan.status import HELD_BACK

# A pod on a node that does not answer stays until the node is gone. By then kubelet, if it lives, has killed it long
# ago; if not, whatever runs there has lost its peers, which are replaced as well, and it cannot join the new ones.
GIVEN_UP_AFTER = timedelta(minutes=1)
MOST_AT_ONCE = 2000  # pods that one pass makes: between two of them the counters are told
FEW = 32  # writes that are soon done: not worth a status of their own


def waves(*steps: Iterable[Write]) -> tuple[tuple[Write, ...], ...]:
    return tuple(wave for step in steps if (wave := tuple(step)))


def without_finalizer(job: Job) -> list[Write]:
    """The Go operator's, which would keep a job from going while no operator is there to take it off."""
    if GO_FINALIZER not in job.metadata.finalizers:
        return []
    kept = [each for each in job.metadata.finalizers if each != GO_FINALIZER]
    metadata = {"finalizers": kept, "resourceVersion": job.metadata.resource_version}
    return [Patch(PADDLE_JOBS, job.key, job.uid, {"metadata": metadata})]


def superfluous(world: ObservedJob) -> Iterator[Write]:
    """Pods of an earlier attempt or beyond the wanted number, the highest first; the barrier that belongs to them."""
    barrier = world.barrier
    if barrier and not world.released and not barrier.terminating:
        yield Delete(CONFIG_MAPS, barrier.key, barrier.uid)
    alone = len(world.leftovers) == len(world.children.pods)  # a restart replaces them all
    yield from removed(world.job, PODS, world.leftovers) if alone else one_by_one(PODS, world.leftovers)
    wanted = world.places if world.spec.intranet is Intranet.SERVICE else {}
    for each in world.children.services:
        if each.ours and not each.terminating and each.name not in wanted:
            yield Delete(SERVICES, each.key, each.uid)


def stuck_terminating(world: ObservedJob, now: datetime) -> list[PodView]:
    """Pods that hold a name for longer than a kubelet that lives would let them."""
    late = [pod for pod in world.leftovers if (until := _given_up_at(pod)) and now >= until]
    return sorted(late, key=lambda pod: pod.name)


def next_given_up(world: ObservedJob, now: datetime) -> datetime | None:
    return min((until for pod in world.leftovers if (until := _given_up_at(pod)) and until > now), default=None)


def _given_up_at(pod: PodView) -> datetime | None:
    """Of one that has ended, or never had a node, no process is left: somebody's finalizer holds it."""
    return pod.leaves_at + GIVEN_UP_AFTER if pod.leaves_at and pod.node and not pod.finished else None


def force_deletes(pods: Iterable[PodView]) -> list[Write]:
    return [Delete(PODS, pod.key, pod.uid, force=True) for pod in pods]


def missing_services(world: ObservedJob, now: datetime) -> list[Write]:
    free = _not_refused(world, SERVICES.plural, world.without_service, now)
    job = world.job
    return [
        Create(SERVICES, pod_key(job.key, role, index), partial(service, job, role, index))
        for role, index in free[:MOST_AT_ONCE]
    ]


def missing_pods(world: ObservedJob, etcd: str, now: datetime, *, gang: bool = False) -> Iterator[list[Write]]:
    """Servers, workers and others, a role at a time."""
    free = _not_refused(world, PODS.plural, world.missing, now)
    if not free:
        return
    taken = {pod.name for pod in world.leftovers}
    for role, wanted in world.spec.roles.items():
        maker = PodMaker(world.job, role, wanted, etcd=etcd, gang=gang)
        places = [index for each, index in free if each is role]
        indexes = [index for index in places if pod_name(world.job.key, role, index) not in taken]
        yield [
            Create(PODS, pod_key(world.job.key, role, index), partial(maker.pod, index))
            for index in indexes[:MOST_AT_ONCE]
        ]
        if len(indexes) > MOST_AT_ONCE:
            return  # the echo of these brings the next pass, and the next roles come after this one


def _not_refused(
    world: ObservedJob, kind: str, places: list[tuple[Role, int]], now: datetime
) -> list[tuple[Role, int]]:
    """What the API server refused is not sent again before its time, nor is what it would refuse as well: where a
    quota is used up, thousands of pods would otherwise ask for it every minute.
    """
    held = _held(world, kind, now)
    if any(reason != NAME_CONFLICT for reason in held.values()):
        return []
    return [place for place in places if pod_key(world.job.key, *place) not in held] if held else places


def _held(world: ObservedJob, kind: str, now: datetime) -> dict[Key, str]:
    return {each.key: each.reason for each in world.refusals if each.kind == kind and each.retry_at > now}


def barrier(world: ObservedJob, shared: RendezvousEnv, now: datetime) -> list[Write]:
    """As soon as every address is known. Pods that the Go operator made know nothing of what it would say."""
    if not all(pod.ours for pod in world.pods()) or barrier_is_refused(world, now):
        return []
    return [Create(CONFIG_MAPS, world.job.key, partial(config_map, world.job, shared))]


def required_names(world: ObservedJob, pods: list[list[Write]]) -> tuple[tuple[Resource[Any], Key], ...]:
    """A ConfigMap of somebody else, perhaps of a job of this name that was deleted a moment ago, would let containers
    start with what it says: while there is one, no pod is made.
    """
    return ((CONFIG_MAPS, world.job.key),) if any(pods) and not world.spec.is_elastic else ()


def barrier_is_refused(world: ObservedJob, now: datetime) -> bool:
    return world.job.key in _held(world, CONFIG_MAPS.plural, now)


def group_is_refused(world: ObservedJob, now: datetime) -> bool:
    return world.job.key in _held(world, POD_GROUPS.plural, now)


def kubelet_nudges(world: ObservedJob, digest: str) -> list[Write]:
    """Whoever waits for the barrier is woken, since kubelet looks only now and then: 0.1 s instead of up to 13."""
    change = {"metadata": {"annotations": {CONTRACT: digest}}}
    return [
        Patch(PODS, pod.key, pod.uid, change)
        for pod in world.pods()
        if pod.waiting == HELD_BACK and pod.woken_for != digest
    ]
