"""Simulates one container from its status: waiting, running, terminated, and restarted with kubelet's back-off.

The first restart comes after a second, the next ones 10, 20, 40 … 300 s after the exit; `speed` divides these times.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from paddle_operator.kube.backoff import exponential
from paddle_operator.local.kubelet.container_worker import FIRST_RESTART_BACKOFF_SECONDS, MAX_RESTART_BACKOFF_SECONDS
from paddle_operator.local.kubelet.image_manager import ERR_IMAGE_PULL_SECONDS
from paddle_operator.local.kubelet.pod import (
    ContainerSpec,
    LocalContainerStatus,
    LocalPod,
    RunningState,
    TerminatedState,
    WaitingState,
)
from paddle_operator.local.kubelet.pod_status import (
    CONFIG_ERROR,
    CONTAINER_CREATING,
    CRASH_LOOP,
    POD_INITIALIZING,
    SIGKILL_EXIT_CODE,
    AnyContainerState,
    ContainerView,
)
from testbed.hollow_script import NEVER, ContainerBehaviour, Script, SimulatedRun

RESTART_SECONDS = 1.0  # kubelet notices an exit within a second


class SimulatedContainer:
    """One container of a pod; it continues from the pod's status. Times are seconds since the epoch."""

    def __init__(self, pod: LocalPod, spec: ContainerSpec, *, is_init: bool, speed: float) -> None:
        statuses = pod.status.init_container_statuses if is_init else pod.status.container_statuses
        status = next((each for each in statuses if each.name == spec.name), LocalContainerStatus())
        waiting = POD_INITIALIZING if pod.spec.init_containers else CONTAINER_CREATING
        known = status.state.running or status.state.waiting or status.state.terminated
        self.spec = spec
        self.view = ContainerView(
            spec.name,
            spec.image,
            known or WaitingState(waiting),
            is_init,
            last_termination=status.last_state.terminated,
            restarts=status.restart_count,
            ready=status.state.running is not None and pod.status.ready,
            started=True,
        )
        self._pod = pod
        self._policy = "OnFailure" if is_init and pod.spec.restart_policy == "Always" else pod.spec.restart_policy
        self._speed = speed
        self._started_at = _seconds(status.state.running.started_at) if status.state.running else 0.0
        self._startable_at: float | None = None
        self._restart_at: float | None = None
        if self.view.has_run:
            self._set_container_id()

    @property
    def state(self) -> AnyContainerState:
        return self.view.state

    @property
    def is_running(self) -> bool:
        return isinstance(self.state, RunningState)

    @property
    def run(self) -> SimulatedRun:
        pod = self._pod
        return SimulatedRun(pod.key, pod.uid, self.spec.name, self.view.is_init, self.view.restarts)

    @property
    def finished(self) -> bool:
        return isinstance(self.state, TerminatedState) and not self._restarts_after(self.state)

    def advance(self, now: float, script: Script, config_error: Callable[["SimulatedContainer"], str]) -> float:
        """Take the steps that are due and return when the next one is; a config error keeps it from starting."""
        behaviour = script.behaviour_of(self.run)
        if isinstance(self.state, WaitingState) and self.state.reason != CRASH_LOOP:
            start_at = self._start_at(now, behaviour)
            if start_at > now:
                return start_at
            if message := config_error(self):
                self.view.state = WaitingState(CONFIG_ERROR, message)
                return NEVER  # the pod knows when to check again
            self._start(now)
        elif self._restart_at is not None and self._restart_at <= now:
            self._remember_termination()
            self.view.restarts += 1
            self._restart_at = None
            self._start(now)
            behaviour = script.behaviour_of(self.run)
        return self._keep_running(now, behaviour) if self.is_running else self._back_off(now)

    def terminate(self, now: float, script: Script, requested_at: float, kill_at: float) -> float:
        """Advance towards the end that SIGTERM has requested; returns when the next step is due."""
        if not self.is_running:
            return NEVER
        behaviour = script.behaviour_of(self.run)
        exit_at = self._exit_at(behaviour)
        sigterm_exit_at = requested_at + behaviour.sigterm.after
        due_at = min(exit_at, sigterm_exit_at, kill_at)
        if due_at > now:
            return due_at
        if due_at == exit_at:
            self.exit(now, behaviour.end.code, behaviour.end.reason)
        else:
            self.exit(now, behaviour.sigterm.code if due_at == sigterm_exit_at else SIGKILL_EXIT_CODE)
        return NEVER

    def exit(self, now: float, code: int, reason: str = "") -> None:
        started_at = self.state.started_at if isinstance(self.state, RunningState) else None
        reason = reason or ("Error" if code else "Completed")
        self.view.state = TerminatedState(code, reason, "", started_at, to_datetime(now))
        self.view.ready = False

    def _start(self, now: float) -> None:
        self._started_at = now
        self.view.state = RunningState(to_datetime(now))
        self._set_container_id()

    def _set_container_id(self) -> None:
        """There is no process: the id only has to be unique."""
        self.view.container_id = f"hollow://{self._pod.uid}/{self.spec.name}/{self.view.restarts}"

    def _start_at(self, now: float, behaviour: ContainerBehaviour) -> float:
        if self._startable_at is None:
            self._startable_at = now
        start = behaviour.start
        if start.waits_for != "ErrImagePull":
            return self._startable_at + start.after
        backs_off_at = self._startable_at + ERR_IMAGE_PULL_SECONDS / self._speed
        if now < backs_off_at:
            message = f'failed to pull and unpack image "{self.spec.image}": not found'
            self.view.state = WaitingState("ErrImagePull", message)
            return backs_off_at
        self.view.state = WaitingState("ImagePullBackOff", f'Back-off pulling image "{self.spec.image}"')
        return NEVER

    def _keep_running(self, now: float, behaviour: ContainerBehaviour) -> float:
        exit_at = self._exit_at(behaviour)
        if exit_at <= now:
            self.exit(now, behaviour.end.code, behaviour.end.reason)
            return self._back_off(now)
        ready_at = self._started_at + behaviour.readiness.after
        self.view.ready = ready_at <= now
        return exit_at if self.view.ready else min(exit_at, ready_at)

    def _exit_at(self, behaviour: ContainerBehaviour) -> float:
        return max(self._started_at, behaviour.end_added_at) + behaviour.end.after

    def _back_off(self, now: float) -> float:
        if self.finished:
            return NEVER
        if self._restart_at is None:
            seconds = RESTART_SECONDS
            if self.view.restarts:
                seconds = exponential(self.view.restarts, FIRST_RESTART_BACKOFF_SECONDS, MAX_RESTART_BACKOFF_SECONDS)
                self._remember_termination()
                message = f"back-off {seconds:.0f}s restarting failed container={self.spec.name}"
                self.view.state = WaitingState(CRASH_LOOP, message)
            self._restart_at = now + seconds / self._speed
        return self._restart_at

    def _remember_termination(self) -> None:
        if isinstance(self.state, TerminatedState):
            self.view.last_termination = self.state

    def _restarts_after(self, state: TerminatedState) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and state.exit_code != 0)


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0
