"""Simulates one pod on a hollow node, from binding to its end: what a kubelet would do next, and when.

No client and no sleep: the pod, the time and the rules are arguments; the result is a status.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from paddle_operator.kube.backoff import exponential
from paddle_operator.kube.objects import Manifest
from paddle_operator.local.kubelet.pod import LocalPod, WaitingState
from paddle_operator.local.kubelet.pod_status import (
    CONFIG_ERROR,
    DEADLINE_EXCEEDED,
    StatusInput,
    TerminationCause,
    compute_status,
)
from paddle_operator.local.kubelet.pod_worker import FIRST_MOUNT_RETRY_SECONDS, MAX_MOUNT_RETRY_SECONDS
from testbed.hollow_config import ConfigChecker, container_requirements, volume_requirements
from testbed.hollow_container import SimulatedContainer, to_datetime
from testbed.hollow_script import NEVER, Script

# From ConfigMap to running on a real kubelet, which does not watch for it; an update of the pod makes it sync at once.
CONFIG_RETRY_SECONDS = (1.0, 13.0)
# A ConfigMap created before the update may be observed after it, later still if the machine stalls.
NUDGED_SECONDS = 10.0
NUDGED_RETRY_SECONDS = 0.1


@dataclass(frozen=True)
class SimulationDeps:
    """What the pods of all hollow nodes share."""

    script: Script
    config: ConfigChecker
    allocate_address: Callable[[], str]
    speed: float = 1.0


@dataclass
class SimulatedTermination:
    """The pod is being terminated; without a cause it was deleted."""

    requested_at: float
    kill_at: float
    cause: TerminationCause | None = None


class SimulatedPod:
    """One pod, with what its object does not say. Times are seconds since the epoch."""

    def __init__(self, pod: LocalPod, node_address: str, deps: SimulationDeps, now: float) -> None:
        speed = deps.speed
        self.pod = pod
        self.node_address = node_address
        self.address = node_address if pod.spec.host_network else pod.status.pod_ip
        self.started_at = pod.status.start_time.timestamp() if pod.status.start_time else now
        self.init_containers = [
            SimulatedContainer(pod, spec, is_init=True, speed=speed) for spec in pod.spec.init_containers
        ]
        self.containers = [SimulatedContainer(pod, spec, is_init=False, speed=speed) for spec in pod.spec.containers]
        self.termination: SimulatedTermination | None = None
        # Volumes are mounted and there is a network; if a container ran before kubelet restarted, this was so.
        self.sandbox_ready = any(not isinstance(container.state, WaitingState) for container in self.all_containers)
        self._deps = deps
        self._mount_failures = 0
        self._mount_at = now
        self._sync_at = now
        self._nudged_at = -NEVER

    @property
    def all_containers(self) -> list[SimulatedContainer]:
        return [*self.init_containers, *self.containers]

    @property
    def initialized(self) -> bool:
        return all(container.view.succeeded for container in self.init_containers)

    @property
    def finished(self) -> bool:
        """Nothing runs, and nothing will."""
        if self.termination:
            return not any(container.is_running for container in self.all_containers)
        if any(container.finished and not container.view.succeeded for container in self.init_containers):
            return True
        return all(container.finished for container in self.containers)

    def nudge(self, now: float) -> None:
        """The pod object was changed: check again whether missing configuration exists."""
        self._nudged_at = self._sync_at = now

    def evict(self, now: float, message: str) -> None:
        """Terminate it as a kubelet under memory or disk pressure does: at once and as a disruption."""
        self.termination = SimulatedTermination(now, now, TerminationCause("Evicted", message, is_disruption=True))

    def advance(self, pod: LocalPod, now: float) -> float:
        """Take all steps that are due and return when the next one is."""
        self.pod = pod
        deadline_at = self._deadline_at()
        if not self.termination and deadline_at <= now:
            grace = pod.spec.termination_grace_period_seconds
            self.termination = SimulatedTermination(now, now + grace, DEADLINE_EXCEEDED)
        if pod.being_deleted:
            kill_at = now + pod.metadata.deletion_grace_period_seconds
            self.termination = self.termination or SimulatedTermination(now, kill_at)
            self.termination.kill_at = min(self.termination.kill_at, kill_at)
        if self.termination:
            return self._terminate(self.termination, now)
        return min(self._advance_containers(now), deadline_at)

    def status(self, now: float) -> Manifest:
        status_input = StatusInput(
            pod=self.pod,
            host_ip=self.node_address,
            pod_ip=self.address,
            started_at=to_datetime(self.started_at),
            init_containers=[container.view for container in self.init_containers],
            containers=[container.view for container in self.containers],
            sandbox_ready=self.sandbox_ready,
            finished=self.finished,
            terminating=self.termination is not None,
            cause=self.termination.cause if self.termination else None,
        )
        return compute_status(status_input, to_datetime(now))

    def _deadline_at(self) -> float:
        seconds = self.pod.spec.active_deadline_seconds
        return NEVER if seconds is None else self.started_at + seconds

    def _advance_containers(self, now: float) -> float:
        if not self.sandbox_ready:
            next_try_at = self._set_up_sandbox(now)
            if not self.sandbox_ready:
                return next_try_at
        script, config_error = self._deps.script, self._config_error_at(now)
        for container in self.init_containers:
            next_at = container.advance(now, script, config_error)
            if not container.view.succeeded:
                return min(next_at, self._next_sync_at(now))
        steps = [container.advance(now, script, config_error) for container in self.containers]
        return min(*steps, self._next_sync_at(now))

    def _set_up_sandbox(self, now: float) -> float:
        """Mount the volumes and join the network; returns when to retry, which no update of the pod shortens."""
        script = self._deps.script
        if any(not script.behaviour_of(container.run).start.sandbox for container in self.containers):
            return NEVER
        if now < self._mount_at:
            return self._mount_at
        namespace = self.pod.key.namespace
        if any(self._deps.config.missing(namespace, each) for each in volume_requirements(self.pod)):
            self._mount_failures += 1
            seconds = exponential(self._mount_failures, FIRST_MOUNT_RETRY_SECONDS, MAX_MOUNT_RETRY_SECONDS)
            self._mount_at = now + seconds / self._deps.speed
            return self._mount_at
        self.sandbox_ready = True
        self.address = self.address or self._deps.allocate_address()
        return now

    def _config_error_at(self, now: float) -> Callable[[SimulatedContainer], str]:
        """What is missing for a container to be created; between two syncs, what was missing at the last one."""

        def config_error(container: SimulatedContainer) -> str:
            state = container.state
            if now < self._sync_at and isinstance(state, WaitingState) and state.reason == CONFIG_ERROR:
                return state.message
            namespace = self.pod.key.namespace
            missing = (self._deps.config.missing(namespace, each) for each in container_requirements(container.spec))
            return next(filter(None, missing), "")

        return config_error

    def _next_sync_at(self, now: float) -> float:
        states = (container.state for container in self.all_containers)
        if not any(isinstance(state, WaitingState) and state.reason == CONFIG_ERROR for state in states):
            return NEVER
        if now >= self._sync_at:
            nudged = now < self._nudged_at + NUDGED_SECONDS
            seconds = random.uniform(*CONFIG_RETRY_SECONDS) / self._deps.speed
            self._sync_at = now + (min(seconds, NUDGED_RETRY_SECONDS) if nudged else seconds)
        return self._sync_at

    def _terminate(self, termination: SimulatedTermination, now: float) -> float:
        script, requested_at, kill_at = self._deps.script, termination.requested_at, termination.kill_at
        next_at = min(container.terminate(now, script, requested_at, kill_at) for container in self.all_containers)
        if self.finished and self.initialized:
            for container in self.containers:
                container.view.mark_unknown()
        return next_at
