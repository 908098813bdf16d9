"""What is known of a job that somebody watches, and how it is told in words: pure, so that a test can read it."""

from dataclasses import dataclass, field
from datetime import datetime

from paddle_operator.api.paddlejob import Phase
from paddle_operator.api.reasons import WaitingReason
from paddle_operator.cli.deadline_text import end_told, expiry_told, tries_told
from paddle_operator.cli.training_progress import Progress, Result, progress_in, result_in, result_in_words
from paddle_operator.kube.durations import human_duration
from paddle_operator.kube.objects import Pod
from paddle_operator.plan.children import Job, PodView, pod_view
from paddle_operator.plan.status import BARRIER_WAIT_REASON

PREPARING = (
    WaitingReason.CONTAINER_CREATING
)  # with a message where an image is being made: what is downloaded, how long it takes
LONGEST_TAIL = 12  # lines of a failed program that the summary shows again


@dataclass
class PodProgress:
    """A pod, what it told last, and what it printed last."""

    view: PodView
    progress: Progress | None = None
    result: Result | None = None
    tail: list[str] = field(default_factory=list)
    gone: bool = False


class JobProgress:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.actors: dict[str, PodProgress] = {}

    def saw(self, pod: Pod) -> bool:
        """Take over a pod's newest state; says whether it reads otherwise than before."""
        view = pod_view(pod)
        actor = self.actors.get(view.name)
        if actor is None or actor.view.uid != view.uid:
            self.actors[view.name] = PodProgress(view)
            return True
        before, actor.view = state_in_words(actor.view), view
        return before != state_in_words(view)

    def left(self, pod: Pod) -> None:
        actor = self.actors.get(pod.key.name)
        if actor and actor.view.uid == pod.uid:
            actor.gone = True

    def heard(self, pod: Pod, text: str) -> Progress | None:
        """Take over a line; the progress that it tells, if it does."""
        actor = self.actors.get(pod.key.name)
        if actor is None:
            return None
        actor.tail = [*actor.tail[-(LONGEST_TAIL - 1) :], text]
        actor.result = result_in(text) or actor.result
        told = progress_in(text)
        if told:
            actor.progress = actor.progress.then(told) if actor.progress else told
        return told

    def short(self, name: str) -> str:
        """`worker-0` of `mnist-worker-0`."""
        return name.removeprefix(f"{self.job.key.name}-")

    @property
    def in_order(self) -> list[PodProgress]:
        """Servers first, then workers, each by index."""
        return sorted(self.actors.values(), key=lambda actor: _place(self.short(actor.view.name)))


def _place(short: str) -> tuple[str, int]:
    role, _, index = short.rpartition("-")
    return role, int(index) if index.isdigit() else 0


def state_in_words(pod: PodView) -> str:
    """What a pod is doing, as short as `kubectl get pods` says it and a little clearer."""
    if pod.exit_code is not None and pod.phase != "Pending":
        return ended_in_words(pod)
    if pod.terminating:
        return "Terminating"
    if pod.waiting == BARRIER_WAIT_REASON:
        return "waiting for the addresses of all"
    if pod.waiting:
        return pod.waiting_message if pod.waiting == PREPARING and pod.waiting_message else pod.waiting
    if pod.unschedulable:
        return "no place for it"
    return pod.phase or "Pending"


def ended_in_words(pod: PodView) -> str:
    if pod.exit_code == 0:
        return "Completed"
    if pod.exit_reason == "OOMKilled":
        return f"exited {pod.exit_code}, out of memory"
    return f"exited {pod.exit_code}"


def headline(job: Job, now: datetime) -> str:
    """`mnist  Restarting  0/4  12s  tries used: 1 of 3, next at 12:00:10 UTC  ends at 12:10:00 UTC`."""
    parts = [job.key.name, job.status.phase or "Pending", job.status.ready, human_duration(seconds_of(job, now))]
    return "  ".join(filter(None, [*parts, tries_told(job, now), end_told(job, now)]))


def seconds_of(job: Job, now: datetime) -> float:
    began = job.metadata.creation_timestamp or now
    ended = job.status.completion_time or now
    return max(0.0, (ended - began).total_seconds())


def reason_of(job: Job) -> str:
    """Why the job is as it is, in the operator's own words, and what to do where only its user can do something."""
    by_type = {each.type: each for each in job.status.conditions}
    for type_ in ("Failed", "Completed", "Running"):
        if (found := by_type.get(type_)) and (found.status == "True" or type_ == "Running"):
            rests = job.status.phase == Phase.SUSPENDED
            return f"{found.message}; paddlejob resume {job.key.name} starts it again" if rests else found.message
    accepted = by_type.get("Accepted")
    return accepted.message if accepted and accepted.status != "True" else ""


def summary(scene: JobProgress, now: datetime) -> list[str]:
    """What is left to say at the end, in a few lines."""
    job = scene.job
    took = human_duration(seconds_of(job, now))
    lines = [f"{job.key.name}  {job.status.phase}  after {took}: {reason_of(job)}"]
    lines += [f"  {told}" for told in (tries_told(job, now), expiry_told(job, now)) if told]
    for actor in scene.in_order:
        told = result_in_words(actor.result) if actor.result else ""
        if told:
            lines.append(f"  {scene.short(actor.view.name)}  {told}")
    if job.status.phase == Phase.FAILED:
        lines += _root_failure_logs(scene)
    return lines


def _root_failure_logs(progress: JobProgress) -> list[str]:
    """The last lines of the pod that failed first."""
    failure = progress.job.status.root_failure
    pod = progress.actors.get(failure.pod) if failure else None
    if not failure or not pod or not pod.tail:
        return []
    return [f"  the last lines of {progress.short(failure.pod)}:", *(f"    {line}" for line in pod.tail)]
