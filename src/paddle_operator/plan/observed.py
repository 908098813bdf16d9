"""The observed state of one job at one instant: its pods by role and index, its barrier, its Services.

Built for every plan, so it must be cheap: 5,000 pods take a few milliseconds.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property

from paddle_operator.api.paddlejob import Intranet, Mode, PaddleJobSpec, Role
from paddle_operator.kube.objects import CONFIG_MAPS, PODS, SERVICES, Key
from paddle_operator.kube.writes import Refusal
from paddle_operator.plan.children import Children, PodView
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.metadata import pod_name
from paddle_operator.plan.pod_group import POD_GROUPS
from paddle_operator.plan.pod_template import restart_policy


class ObservedJob:
    """The pods of the current attempt by role and index; `obsolete_pods` have another attempt or no position."""

    def __init__(self, job: Job, spec: PaddleJobSpec, children: Children) -> None:
        self.job = job
        self.spec = spec
        self.children = children
        self.barrier = next((each for each in children.config_maps if each.key == job.key), None)
        key = job.key  # built on every access
        self.positions = {
            pod_name(key, role, index): (role, index)
            for role, part in spec.roles.items()
            for index in range(part.replicas)
        }
        self.pods_by_role: dict[Role, list[PodView | None]] = {
            role: [None] * part.replicas for role, part in spec.roles.items()
        }
        self.obsolete_pods: list[PodView] = []
        self._restart_policies = {role: restart_policy(spec, role) for role in spec.roles}
        for pod in children.pods:
            position = self.positions.get(pod.name)
            if position is None or pod.attempt != job.status.attempt or self._is_obsolete(position[0], pod):
                self.obsolete_pods.append(pod)
            else:
                role, index = position
                self.pods_by_role[role][index] = pod

    def active_refusals(self, kind: str, now: datetime) -> dict[Key, str]:
        """What the API server refused, and why, until the back-off is over."""
        return {each.key: each.reason for each in self.refusals if each.kind == kind and each.retry_at > now}

    def _is_obsolete(self, role: Role, pod: PodView) -> bool:
        """A pod that is being deleted is obsolete whatever its exit code, unless it succeeded.

        A pod that the Go operator created and never released waits for Services that we do not create.
        """
        if pod.uid in self.job.status.replacing:
            return True
        if pod.terminating:
            return self.pod_state(role, pod) != "succeeded"
        return not pod.created_by_us and self.barrier is None and not pod.started

    def pods(self, role: Role | None = None) -> Iterator[PodView]:
        """In the order of roles and indexes."""
        for each, pods in self.pods_by_role.items():
            if role is None or each is role:
                for pod in pods:
                    if pod is not None:
                        yield pod

    def pod_state(self, role: Role, pod: PodView) -> str:
        """Which counter of the status a pod belongs to. A pod ends with its main container, even if a sidecar runs."""
        match pod.phase:
            case "Running":
                return self._main_container_result(role, pod) or ("running" if pod.ready else "starting")
            case "Pending":
                return "starting" if pod.address else "pending"
            case "Succeeded":
                return "succeeded"
            case "Failed":
                return "succeeded" if pod.created_by_us and pod.only_sidecars_failed else "failed"
        return "unknown"

    def _main_container_result(self, role: Role, pod: PodView) -> str | None:
        """None while it runs or will be restarted. Pods of the Go operator are judged by their phase alone."""
        if pod.exit_code is None or not pod.created_by_us:
            return None
        policy = self._restart_policies[role]
        if pod.exit_code == 0:
            return None if policy == "Always" else "succeeded"
        return "failed" if policy == "Never" else None

    @cached_property
    def state_counts(self) -> dict[Role, Counter[str]]:
        """How many pods of a role are in each state."""
        return {role: Counter(self.pod_state(role, pod) for pod in self.pods(role)) for role in self.pods_by_role}

    @cached_property
    def failed(self) -> list[PodView]:
        return [
            pod
            for role, counts in self.state_counts.items()
            if counts["failed"]
            for pod in self.pods(role)
            if self.pod_state(role, pod) == "failed"
        ]

    @cached_property
    def vacant_indexes(self) -> dict[Role, list[int]]:
        """The indexes without a pod, by role."""
        return {
            role: [index for index, pod in enumerate(pods) if pod is None] for role, pods in self.pods_by_role.items()
        }

    @cached_property
    def succeeded_and_deleted(self) -> dict[Role, int]:
        """How many pods of a role succeeded and were deleted afterwards: the job must not restart for them.

        They are those that the last status counts as succeeded beyond the pods that existed. If other pods are missing
        too, the two cannot be distinguished, and all count as missing.
        """
        return {role: self._count_succeeded_and_deleted(role) for role in self.pods_by_role}

    def _count_succeeded_and_deleted(self, role: Role) -> int:
        vacant, before = len(self.vacant_indexes[role]), self.job.status.roles.get(role)
        if before is None or not self.released or not self.job.status.selector:
            return 0  # a status without a selector is the Go operator's, which counts differently
        states = (before.pending, before.starting, before.running, before.failed, before.succeeded, before.unknown)
        deleted_before = sum(states) - before.replicas
        deleted_since = max(0, before.succeeded - deleted_before - self.state_counts[role]["succeeded"])
        return vacant if vacant <= deleted_before + deleted_since else 0

    @cached_property
    def missing(self) -> list[tuple[Role, int]]:
        """Positions whose pod must be created."""
        return [
            (role, index)
            for role, indexes in self.vacant_indexes.items()
            if not self.succeeded_and_deleted[role]
            for index in indexes
        ]

    @cached_property
    def lost_positions(self) -> list[tuple[Role, int]]:
        """Missing positions whose pod cannot be replaced alone."""
        return [position for position in self.missing if not individually_replaceable(self.spec, *position)]

    @cached_property
    def released(self) -> bool:
        """Containers may have started with the addresses of the barrier, even if it was deleted since."""
        if self.barrier is not None:
            return self.barrier.attempt == self.job.status.attempt
        return any(pod.started for pod in self.pods())

    @cached_property
    def missing_services(self) -> list[tuple[Role, int]]:
        """Positions without the Service that gives their pod a name."""
        if self.spec.intranet is not Intranet.SERVICE:
            return []
        existing = {each.name for each in self.children.services}
        return [position for name, position in self.positions.items() if name not in existing]

    @cached_property
    def refusals(self) -> list[Refusal]:
        """The refusals of objects that are still desired and missing."""
        missing = {
            POD_GROUPS.plural: set() if self.children.group else {self.job.key.name},
            CONFIG_MAPS.plural: set() if self.barrier else {self.job.key.name},
            PODS.plural: {pod_name(self.job.key, *position) for position in self.missing},
            SERVICES.plural: {pod_name(self.job.key, *position) for position in self.missing_services},
        }
        return [each for each in self.children.refusals if each.key.name in missing.get(each.kind, ())]


def individually_replaceable(spec: PaddleJobSpec, role: Role, index: int) -> bool:
    """Whether a pod can be replaced alone: no peer has its address, and it rejoins by itself.

    That holds for elastic workers, which meet through etcd, and for workers of parameter servers without gloo. Worker 0
    is an exception: it would overwrite trained parameters with its initial ones.
    """
    if spec.is_elastic:
        return True
    return spec.mode is Mode.PS and spec.gloo == 0 and role is Role.WORKER and index > 0
