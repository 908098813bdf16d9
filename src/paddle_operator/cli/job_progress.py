"""What is known of a watched job and its pods, and the lines in which views and tables show it. Pure: no I/O."""

from dataclasses import dataclass, field
from datetime import datetime

from paddle_operator.api.paddlejob import Phase
from paddle_operator.api.reasons import WaitingReason
from paddle_operator.cli.deadline_text import format_deadline, format_expiry, format_retries
from paddle_operator.cli.training_progress import Result, TrainingProgress, format_result, parse_progress, parse_result
from paddle_operator.client.job_watcher import name_and_index
from paddle_operator.kube.durations import human_duration
from paddle_operator.kube.objects import Pod
from paddle_operator.plan.children import PodView, pod_view
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.status import BARRIER_WAIT_REASON

MAX_TAIL_LINES = 12  # log lines of a failed pod that the summary repeats


@dataclass
class PodProgress:
    """A pod, the last progress that it printed, and its last log lines."""

    view: PodView
    progress: TrainingProgress | None = None
    result: Result | None = None
    tail: list[str] = field(default_factory=list)


class JobProgress:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.pods: dict[str, PodProgress] = {}

    def update_pod(self, pod: Pod) -> bool:
        """Store the newest state of a pod. True if its text changes."""
        view = pod_view(pod)
        known = self.pods.get(view.name)
        if known is None or known.view.uid != view.uid:
            self.pods[view.name] = PodProgress(view)
            return True
        before, known.view = format_pod_detail(known.view), view
        return before != format_pod_detail(view)

    def add_line(self, pod: Pod, line: str) -> TrainingProgress | None:
        """Store a log line. Returns the progress that it reports, if any."""
        known = self.pods.get(pod.key.name)
        if known is None:
            return None
        known.tail = [*known.tail[-(MAX_TAIL_LINES - 1) :], line]
        known.result = parse_result(line) or known.result
        progress = parse_progress(line)
        if progress:
            known.progress = known.progress.merge(progress) if known.progress else progress
        return progress

    def short_name(self, pod: str) -> str:
        """`worker-0` of `mnist-worker-0`."""
        return pod.removeprefix(f"{self.job.key.name}-")

    @property
    def sorted_pods(self) -> list[PodProgress]:
        """Servers first, then workers, each by index."""
        return sorted(self.pods.values(), key=lambda pod: name_and_index(pod.view.name))


def format_pod_state(pod: PodView) -> str:
    """The state of a pod as `kubectl get pods` prints it, with the exit code."""
    if pod.exit_code is not None and pod.phase != "Pending":
        return _format_exit(pod)
    if pod.terminating:
        return "Terminating"
    if pod.waiting == BARRIER_WAIT_REASON:
        return "waiting for peer addresses"
    if pod.waiting:
        return pod.waiting
    if pod.unschedulable:
        return "unschedulable"
    return pod.phase or "Pending"


def format_pod_detail(pod: PodView) -> str:
    """The state of a pod; while its image is built, the step of the build."""
    state = format_pod_state(pod)
    is_building = state == WaitingReason.CONTAINER_CREATING and pod.waiting_message
    return pod.waiting_message if is_building else state


def _format_exit(pod: PodView) -> str:
    if pod.exit_code == 0:
        return "Completed"
    reason = pod.exit_reason if pod.exit_reason not in ("", "Error") else ""
    return f"exited {pod.exit_code} ({reason})" if reason else f"exited {pod.exit_code}"


def headline(job: Job, now: datetime) -> str:
    """`mnist  Restarting  0/4  12s  retries used: 1 of 3, next at 12:00:10 UTC  ends at 12:10:00 UTC`."""
    elapsed = human_duration(elapsed_seconds(job, now))
    parts = [job.key.name, job.status.phase or "Pending", job.status.ready, elapsed]
    return "  ".join(filter(None, [*parts, format_retries(job, now), format_deadline(job, now)]))


def elapsed_seconds(job: Job, now: datetime) -> float:
    """From its creation to its end, or until now."""
    created = job.metadata.creation_timestamp or now
    completed = job.status.completion_time or now
    return max(0.0, (completed - created).total_seconds())


def status_message(job: Job) -> str:
    """The message of the condition that decides: why the job ended, is invalid, or does or does not run."""
    conditions = {each.type: each for each in job.status.conditions}
    for type_ in ("Failed", "Completed"):
        if (ended := conditions.get(type_)) and ended.status == "True":
            return ended.message
    accepted, running = conditions.get("Accepted"), conditions.get("Running")
    if accepted and accepted.status != "True":
        return accepted.message
    if running is None:
        return ""
    is_suspended = job.status.phase == Phase.SUSPENDED
    return f"{running.message}; paddlejob resume {job.key.name} starts it again" if is_suspended else running.message


def summary(progress: JobProgress, now: datetime) -> list[str]:
    """The lines that are printed when the job has ended."""
    job = progress.job
    elapsed = human_duration(elapsed_seconds(job, now))
    lines = [f"{job.key.name}  {job.status.phase}  after {elapsed}: {status_message(job)}"]
    lines += [f"  {text}" for text in (format_retries(job, now), format_expiry(job, now)) if text]
    for pod in progress.sorted_pods:
        if pod.result and (result := format_result(pod.result)):
            lines.append(f"  {progress.short_name(pod.view.name)}  {result}")
    if job.status.phase == Phase.FAILED:
        lines += _root_failure_logs(progress)
    return lines


def _root_failure_logs(progress: JobProgress) -> list[str]:
    """The last lines of the pod that failed first."""
    failure = progress.job.status.root_failure
    pod = progress.pods.get(failure.pod) if failure else None
    if not failure or not pod or not pod.tail:
        return []
    return [f"  last log lines of {progress.short_name(failure.pod)}:", *(f"    {line}" for line in pod.tail)]
