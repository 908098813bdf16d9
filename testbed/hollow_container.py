"""One container's life as its status tells it: waiting, running, terminated, and perhaps again.

The first restart comes at once, the next ones 10, 20, 40 … 300 s after the exit, as with kubelet; `speed` divides that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from testbed.hollow_pod import ContainerSpec, ContainerState, ContainerStatus, HollowPod
from testbed.hollow_script import KILLED, NEVER, Conduct, Script, Who

RESTART_SECONDS = 1.0  # kubelet notices an exit within a second
FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
PULL_SECONDS = 1.0  # from ErrImagePull to ImagePullBackOff

CONFIG_ERROR = "CreateContainerConfigError"
CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True)
class Waiting:
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Running:
    started_at: float


@dataclass(frozen=True)
class Terminated:
    code: int
    reason: str
    message: str = ""
    started_at: float | None = None
    finished_at: float | None = None


State = Waiting | Running | Terminated


class Container:
    """What is known of one container of a pod; it goes on from where the pod's status left it."""

    def __init__(self, pod: HollowPod, spec: ContainerSpec, *, initial: bool, speed: float) -> None:
        status = pod.status
        told = status.init_container_statuses if initial else status.container_statuses
        found = next((one for one in told if one.name == spec.name), ContainerStatus())
        self.spec = spec
        self.initial = initial
        self.restarts = found.restart_count
        self.ready = found.ready
        self.last = _terminated(found.last_state)
        self.state: State = _state(found.state) or Waiting(
            "PodInitializing" if pod.spec.init_containers else "ContainerCreating"
        )
        self._pod = (pod.key, pod.uid)
        self._policy = "OnFailure" if initial and pod.spec.restart_policy == "Always" else pod.spec.restart_policy
        self._speed = speed
        self._could_start_at: float | None = None
        self._again_at: float | None = None

    @property
    def who(self) -> Who:
        return Who(*self._pod, self.spec.name, self.initial, self.restarts)

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.code == 0

    @property
    def finished(self) -> bool:
        return isinstance(self.state, Terminated) and not self._restarts_after(self.state)

    def go_on(self, now: float, script: Script, problem: Callable[["Container"], str]) -> float:
        """Take the steps that are due; answers when the next one is. `problem` says what keeps it from starting."""
        conduct = script.conduct(self.who)
        if isinstance(self.state, Waiting) and self.state.reason != CRASH_LOOP:
            start_at = self._start_at(now, conduct)
            if start_at > now:
                return start_at
            if complaint := problem(self):
                self.state = Waiting(CONFIG_ERROR, complaint)
                return NEVER  # who knows of the problem also knows when to look again
            self.state = Running(now)
        elif self._again_at is not None and self._again_at <= now:
            self.last = self.state if isinstance(self.state, Terminated) else self.last
            self.restarts += 1
            self._again_at = None
            self.state = Running(now)
            conduct = script.conduct(self.who)
        if isinstance(self.state, Running):
            return self._run(self.state, now, conduct)
        return self._pause_before_restart(now)

    def wind_down(self, now: float, script: Script, asked_at: float, kill_at: float) -> float:
        """Go towards the end that was asked for by SIGTERM; answers when to look again."""
        if not isinstance(self.state, Running):
            return NEVER
        conduct = script.conduct(self.who)
        by_itself_at = self._end_at(self.state, conduct)
        yields_at = asked_at + conduct.sigterm.after
        due_at = min(by_itself_at, yields_at, kill_at)
        if due_at > now:
            return due_at
        if due_at == by_itself_at:
            self.exit(now, conduct.end.code, conduct.end.reason)
        else:
            self.exit(now, conduct.sigterm.code if due_at == yields_at else KILLED)
        return NEVER

    def exit(self, now: float, code: int, reason: str = "") -> None:
        started_at = self.state.started_at if isinstance(self.state, Running) else None
        self.state = Terminated(
            code, reason or ("Error" if code else "Completed"), started_at=started_at, finished_at=now
        )
        self.ready = False

    def lose(self) -> None:
        """The pod ends while this one waits: it ended as it last did, or kubelet knows of none and says so."""
        if self.last and isinstance(self.state, Waiting):
            self.state, self.last = self.last, None
        elif not isinstance(self.state, Terminated):
            message = "The container could not be located when the pod was terminated"
            self.state = Terminated(KILLED, "ContainerStatusUnknown", message)

    def _start_at(self, now: float, conduct: Conduct) -> float:
        if self._could_start_at is None:
            self._could_start_at = now
        start = conduct.start
        if start.waits_for != "ErrImagePull":
            return self._could_start_at + start.after
        backs_off_at = self._could_start_at + PULL_SECONDS / self._speed
        if now < backs_off_at:
            message = f'failed to pull and unpack image "{self.spec.image}": not found'
            self.state = Waiting("ErrImagePull", message)
            return backs_off_at
        self.state = Waiting("ImagePullBackOff", f'Back-off pulling image "{self.spec.image}"')
        return NEVER

    def _run(self, state: Running, now: float, conduct: Conduct) -> float:
        end_at = self._end_at(state, conduct)
        if end_at <= now:
            self.exit(now, conduct.end.code, conduct.end.reason)
            return self._pause_before_restart(now)
        ready_at = state.started_at + conduct.readiness.after
        self.ready = ready_at <= now
        return end_at if self.ready else min(end_at, ready_at)

    def _end_at(self, state: Running, conduct: Conduct) -> float:
        return max(state.started_at, conduct.end_given_at) + conduct.end.after

    def _pause_before_restart(self, now: float) -> float:
        state = self.state
        if isinstance(state, Terminated) and not self._restarts_after(state):
            return NEVER
        if self._again_at is None:
            seconds = RESTART_SECONDS
            if self.restarts:
                seconds = min(FIRST_BACKOFF_SECONDS * 2.0 ** (self.restarts - 1), LONGEST_BACKOFF_SECONDS)
                self.last = state if isinstance(state, Terminated) else self.last
                self.state = Waiting(
                    CRASH_LOOP, f"back-off {seconds:.0f}s restarting failed container={self.spec.name}"
                )
            self._again_at = now + seconds / self._speed
        return self._again_at

    def _restarts_after(self, state: Terminated) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and state.code != 0)


def _state(found: ContainerState) -> State | None:
    if found.running:
        return Running(_seconds(found.running.started_at) or 0.0)
    if found.waiting:
        return Waiting(found.waiting.reason, found.waiting.message)
    return _terminated(found)


def _terminated(found: ContainerState) -> Terminated | None:
    if not (end := found.terminated):
        return None
    return Terminated(end.exit_code, end.reason, end.message, _seconds(end.started_at), _seconds(end.finished_at))


def _seconds(at: datetime | None) -> float | None:
    return at.timestamp() if at else None
