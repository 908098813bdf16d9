"""One pod's life on a hollow node, from binding to its end: what a kubelet would do next, and when.

No client and no sleep: the pod, the time and the rules come in; hollow_status.py says how the outcome is told.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from testbed.hollow_config import Config
from testbed.hollow_container import CONFIG_ERROR, Container, Running, Waiting
from testbed.hollow_pod import HollowPod
from testbed.hollow_script import NEVER, Script

# From ConfigMap to running on a real kubelet, which is not told of it; an update of the pod makes it look at once.
LOOKS_AGAIN_SECONDS = (1.0, 13.0)
# A ConfigMap that was made before the update may be heard of a moment after it, or where the machine stalls some more.
NUDGED_SECONDS = 10.0
NUDGED_LOOKS_EVERY_SECONDS = 0.1
# Mounting goes by a back-off of its own, which no update of the pod cuts short.
FIRST_MOUNT_SECONDS = 0.5
LONGEST_MOUNT_SECONDS = 122.0


@dataclass(frozen=True)
class Surroundings:
    """What the pods of all hollow nodes share."""

    script: Script
    config: Config
    address: Callable[[], str]
    speed: float = 1.0


@dataclass
class Stop:
    """The pod was told to end; without a reason it was deleted."""

    asked_at: float
    kill_at: float
    reason: str = ""
    message: str = ""
    disruption: bool = False


class Life:
    """What is known of one pod beyond what its object says."""

    def __init__(self, pod: HollowPod, node_address: str, around: Surroundings, now: float) -> None:
        self.pod = pod
        self.node_address = node_address
        self.address = node_address if pod.spec.host_network else pod.status.pod_ip
        self.started_at = pod.status.start_time.timestamp() if pod.status.start_time else now
        self.initial = [Container(pod, spec, initial=True, speed=around.speed) for spec in pod.spec.init_containers]
        self.containers = [Container(pod, spec, initial=False, speed=around.speed) for spec in pod.spec.containers]
        self.stop: Stop | None = None
        # Volumes are mounted and there is a network; where a container ran before kubelet restarted, that was so.
        self.sandbox = any(not isinstance(container.state, Waiting) for container in self.everything)
        self._around = around
        self._mounts = 0
        self._mount_at = now
        self._look_at = now
        self._nudged_at = -NEVER

    @property
    def everything(self) -> list[Container]:
        return [*self.initial, *self.containers]

    @property
    def initialized(self) -> bool:
        return all(container.succeeded for container in self.initial)

    @property
    def over(self) -> bool:
        """Nothing runs, and nothing will."""
        if self.stop:
            return not any(isinstance(container.state, Running) for container in self.everything)
        if any(container.finished and not container.succeeded for container in self.initial):
            return True
        return all(container.finished for container in self.containers)

    def nudge(self, now: float) -> None:
        """The pod itself was changed: look again whether what was missing is there."""
        self._nudged_at = self._look_at = now

    def evict(self, now: float, message: str) -> None:
        """End it as a kubelet does that is short of memory or disk: at once and as a disruption."""
        self.stop = Stop(now, now, "Evicted", message, disruption=True)

    def advance(self, pod: HollowPod, now: float) -> float:
        """Take all steps that are due; answers when the next one is."""
        self.pod = pod
        deadline_at = self._deadline_at()
        if not self.stop and deadline_at <= now:
            grace = pod.spec.termination_grace_period_seconds
            message = "Pod was active on the node longer than the specified deadline"
            self.stop = Stop(now, now + grace, "DeadlineExceeded", message)
        if pod.being_deleted:
            kill_at = now + pod.metadata.deletion_grace_period_seconds
            self.stop = self.stop or Stop(now, kill_at)
            self.stop.kill_at = min(self.stop.kill_at, kill_at)
        return self._wind_down(self.stop, now) if self.stop else min(self._go_on(now), deadline_at)

    def _deadline_at(self) -> float:
        seconds = self.pod.spec.active_deadline_seconds
        return NEVER if seconds is None else self.started_at + seconds

    def _go_on(self, now: float) -> float:
        if not self.sandbox:
            next_try_at = self._set_up(now)
            if not self.sandbox:
                return next_try_at
        for container in self.initial:
            wake_at = container.go_on(now, self._around.script, self._problem_at(now))
            if not container.succeeded:
                return min(wake_at, self._next_look_at(now))
        wakes = [container.go_on(now, self._around.script, self._problem_at(now)) for container in self.containers]
        return min(*wakes, self._next_look_at(now))

    def _set_up(self, now: float) -> float:
        """Mount the volumes and join the network; answers when to try again where that did not succeed."""
        if any(not self._around.script.conduct(container.who).start.sandbox for container in self.containers):
            return NEVER
        if now < self._mount_at:
            return self._mount_at
        namespace = self.pod.key.namespace
        needs = (need for volume in self.pod.spec.volumes for need in volume.needs())
        if any(self._around.config.lack(namespace, need) for need in needs):
            seconds = min(FIRST_MOUNT_SECONDS * 2.0**self._mounts, LONGEST_MOUNT_SECONDS) / self._around.speed
            self._mounts += 1
            self._mount_at = now + seconds
            return self._mount_at
        self.sandbox = True
        self.address = self.address or self._around.address()
        return now

    def _problem_at(self, now: float) -> Callable[[Container], str]:
        """What a container complains of that is to be created now; between two looks that is the last complaint."""

        def problem(container: Container) -> str:
            state = container.state
            if now < self._look_at and isinstance(state, Waiting) and state.reason == CONFIG_ERROR:
                return state.message
            lacks = (self._around.config.lack(self.pod.key.namespace, need) for need in container.spec.needs())
            return next(filter(None, lacks), "")

        return problem

    def _next_look_at(self, now: float) -> float:
        states = (container.state for container in self.everything)
        if not any(isinstance(state, Waiting) and state.reason == CONFIG_ERROR for state in states):
            return NEVER
        if now >= self._look_at:
            nudged = now < self._nudged_at + NUDGED_SECONDS
            seconds = random.uniform(*LOOKS_AGAIN_SECONDS) / self._around.speed
            self._look_at = now + (min(seconds, NUDGED_LOOKS_EVERY_SECONDS) if nudged else seconds)
        return self._look_at

    def _wind_down(self, stop: Stop, now: float) -> float:
        script = self._around.script
        wake_at = min(container.wind_down(now, script, stop.asked_at, stop.kill_at) for container in self.everything)
        if self.over and self.initialized:
            for container in self.containers:
                container.lose()
        return wake_at
