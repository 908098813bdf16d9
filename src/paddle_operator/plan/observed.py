"""What there is of a job at one instant: its pods by role and index, its barrier, its Services.

Made anew for every decision, so it must be cheap: 5,000 pods are seated and sorted in a few milliseconds.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from paddle_operator.api.paddlejob import Intranet, Mode, PaddleJobSpec, Role, rule_of, success_indexes
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES
from paddle_operator.kube.writes import Refusal
from paddle_operator.plan.children import Children, Job, PodView
from paddle_operator.plan.metadata import pod_name
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.pod_template import restart_policy


class ObservedJob:
    """The pods of the present attempt by role and index; `leftovers` are of an earlier one or of nobody's place."""

    def __init__(self, job: Job, spec: PaddleJobSpec, children: Children) -> None:
        self.job = job
        self.spec = spec
        self.children = children
        self.barrier = next((each for each in children.config_maps if each.key == job.key), None)
        key = job.key  # made anew whenever it is asked for
        self.positions = {
            pod_name(key, role, index): (role, index)
            for role, wanted in spec.roles.items()
            for index in range(wanted.replicas)
        }
        self.pods_by_role: dict[Role, list[PodView | None]] = {
            role: [None] * wanted.replicas for role, wanted in spec.roles.items()
        }
        self.obsolete_pods: list[PodView] = []
        self._restart_policies = {role: restart_policy(spec, role) for role in spec.roles}
        for pod in children.pods:
            place = self.positions.get(pod.name)
            if place is None or pod.attempt != job.status.attempt or self._is_lost(place[0], pod):
                self.obsolete_pods.append(pod)
            else:
                role, index = place
                self.pods_by_role[role][index] = pod

    def _is_lost(self, role: Role, pod: PodView) -> bool:
        """A pod that somebody deletes is lost, whatever code it ends with, unless it has done its part. One that the Go
        operator made and never released waits for Services that we do not make: it is made again.
        """
        if pod.uid in self.job.status.replacing:
            return True
        if pod.terminating:
            return self.pod_state(role, pod) != "succeeded"
        return not pod.ours and self.barrier is None and not pod.started

    def pods(self, role: Role | None = None) -> Iterator[PodView]:
        """In the order of roles and indexes."""
        for each, pods_by_role in self.pods_by_role.items():
            if role is None or each is role:
                for pod in pods_by_role:
                    if pod is not None:
                        yield pod

    def pod_state(self, role: Role, pod: PodView) -> str:
        """What a pod counts as: the main container's end is the pod's, even if a sidecar runs on."""
        match pod.phase:
            case "Running":
                return self._end_of_main(role, pod) or ("running" if pod.ready else "starting")
            case "Pending":
                return "starting" if pod.address else "pending"
            case "Succeeded":
                return "succeeded"
            case "Failed":
                return "succeeded" if pod.ours and pod.only_sidecars_failed else "failed"
        return "unknown"

    def _end_of_main(self, role: Role, pod: PodView) -> str | None:
        """How its main container ended for good; of a pod that the Go operator made only its phase is known."""
        if pod.exit_code is None or not pod.ours:
            return None
        policy = self._restart_policies[role]
        if pod.exit_code == 0:
            return None if policy == "Always" else "succeeded"
        return "failed" if policy == "Never" else None

    @cached_property
    def state_counts(self) -> dict[Role, Counter[str]]:
        """How many pods of each sort a role has."""
        return {role: Counter(self.pod_state(role, pod) for pod in self.pods(role)) for role in self.pods_by_role}

    @cached_property
    def failed(self) -> list[PodView]:
        return [
            pod
            for role, state_counts in self.state_counts.items()
            if state_counts["failed"]
            for pod in self.pods(role)
            if self.pod_state(role, pod) == "failed"
        ]

    @cached_property
    def vacant_indexes(self) -> dict[Role, list[int]]:
        """Where no pod is, by role."""
        return {
            role: [index for index, pod in enumerate(pods_by_role) if pod is None]
            for role, pods_by_role in self.pods_by_role.items()
        }

    @cached_property
    def succeeded_and_deleted(self) -> dict[Role, int]:
        """How many pods of a role had succeeded when somebody deleted them: the whole job must not run again for them.

        The last status remembers them by its counts: pods that it counts as succeeded beyond those that existed are
        such as these. If others are missing beside them, nobody can tell which is which, and all count as missing.
        """
        return {role: self._count_succeeded_and_deleted(role) for role in self.pods_by_role}

    def _count_succeeded_and_deleted(self, role: Role) -> int:
        vacant_indexes, before = len(self.vacant_indexes[role]), self.job.status.roles.get(role)
        if before is None or not self.released or not self.job.status.selector:
            return 0  # a status without a selector is the Go operator's, which counts otherwise
        known = sum((before.pending, before.starting, before.running, before.failed, before.succeeded, before.unknown))
        known -= before.replicas
        gone_since = max(0, before.succeeded - known - self.state_counts[role]["succeeded"])
        return vacant_indexes if vacant_indexes <= known + gone_since else 0

    @cached_property
    def missing(self) -> list[tuple[Role, int]]:
        """Places whose pod is to be made."""
        return [
            (role, index)
            for role, vacant_indexes in self.vacant_indexes.items()
            if not self.succeeded_and_deleted[role]
            for index in vacant_indexes
        ]

    @cached_property
    def lost_positions(self) -> list[tuple[Role, int]]:
        """Places that are missing and whose pod cannot be made again by itself."""
        return [place for place in self.missing if not individually_replaceable(self.spec, *place)]

    @property
    def success_roles(self) -> list[Role]:
        """Whose success is the job's: the workers', or everybody's where there are no workers."""
        return [Role.WORKER] if self.spec.worker else list(self.pods_by_role)

    @property
    def succeeded(self) -> bool:
        if self.spec.success_policy:
            return self._policy_is_met()
        return all(
            self.state_counts[role]["succeeded"] + self.succeeded_and_deleted[role] == len(self.pods_by_role[role])
            for role in self.success_roles
        )

    def _policy_is_met(self) -> bool:
        pods_by_role, matter = self.pods_by_role[Role.WORKER], success_indexes(self.spec)
        done = sum(
            pod is not None and self.pod_state(Role.WORKER, pod) == "succeeded"
            for pod in pods_by_role[matter.start : matter.stop]
        )
        if len(matter) == len(pods_by_role):
            done += self.succeeded_and_deleted[
                Role.WORKER
            ]  # nobody can tell which those were: they count where all matter
        return done >= (rule_of(self.spec).succeeded_count or len(matter))

    @cached_property
    def released(self) -> bool:
        """Containers may have started with the addresses that the barrier holds, or held before somebody deleted it."""
        if self.barrier is not None:
            return self.barrier.attempt == self.job.status.attempt
        return any(pod.started for pod in self.pods())

    @cached_property
    def service_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.children.services)

    @cached_property
    def missing_services(self) -> list[tuple[Role, int]]:
        """Places that lack the Service which gives their pod a name."""
        if self.spec.intranet is not Intranet.SERVICE:
            return []
        return [place for name, place in self.positions.items() if name not in self.service_names]

    @cached_property
    def refusals(self) -> list[Refusal]:
        """Those about something that is still wanted and not there."""
        creation_blocker = {
            POD_GROUPS.plural: set() if self.children.group else {self.job.key.name},
            CONFIG_MAPS.plural: set() if self.barrier else {self.job.key.name},
            PODS.plural: {pod_name(self.job.key, *place) for place in self.missing},
            SERVICES.plural: {pod_name(self.job.key, *place) for place in self.missing_services},
        }
        return [each for each in self.children.refusals if each.key.name in creation_blocker.get(each.kind, ())]


def individually_replaceable(spec: PaddleJobSpec, role: Role, index: int) -> bool:
    """Whether a pod can be made again without the others: nobody has its address, and it finds its way back by itself.

    That is so for elastic workers, which meet through etcd, and for workers of parameter servers without gloo, except
    for the first: it would push its initial parameters over those that the others have trained.
    """
    if spec.is_elastic:
        return True
    return spec.mode is Mode.PS and spec.gloo == 0 and role is Role.WORKER and index > 0
