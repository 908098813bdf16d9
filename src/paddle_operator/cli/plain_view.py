"""Shows a watched job on pipes, in files and in CI: one line for each change, none redrawn."""

from datetime import UTC, datetime

from paddle_operator.cli.deadline_text import format_deadline, format_retries
from paddle_operator.cli.job_progress import JobProgress, format_pod_detail, status_message
from paddle_operator.cli.output import echo
from paddle_operator.cli.training_progress import OWN_PROGRESS
from paddle_operator.kube.objects import Pod
from paddle_operator.plan.job_view import Job


class StatusView:
    """Prints changes of the job, not of its pods."""

    def __init__(self, progress: JobProgress) -> None:
        self.progress = progress
        self._status = self._deadline = ""

    def on_job(self, job: Job) -> None:
        self.progress.job = job
        now = datetime.now(UTC)
        retries = format_retries(job, job.status.next_attempt_time or now)
        message = "; ".join(filter(None, [status_message(job), retries]))
        status = f"{job.key.name}  {job.status.phase or 'Pending'}: {message}"
        if job.status.phase and status != self._status:
            self._status = status
            echo(status)
        deadline = format_deadline(job, now)
        if deadline and deadline != self._deadline:  # a suspension moves it
            self._deadline = deadline
            echo(f"{job.key.name}  {deadline}: spec.activeDeadlineSeconds")

    def on_pod(self, pod: Pod) -> None: ...
    def on_pod_deleted(self, pod: Pod) -> None: ...
    def on_log_line(self, pod: Pod, container: str, line: str) -> None: ...


class PlainView(StatusView):
    """Prints changes of the job and of its pods, and their logs."""

    def on_pod(self, pod: Pod) -> None:
        if self.progress.update_pod(pod):
            view = self.progress.pods[pod.key.name].view
            address = f"  {view.address}" if view.address else ""
            echo(f"{self.progress.short_name(pod.key.name)}  {format_pod_detail(view)}{address}")

    def on_log_line(self, pod: Pod, container: str, line: str) -> None:
        reported = self.progress.add_line(pod, line)
        text = str(reported) if reported and OWN_PROGRESS in line else line
        echo(f"{line_prefix(self.progress, pod, container)} | {text}")


def line_prefix(progress: JobProgress, pod: Pod, container: str) -> str:
    """`worker-0`, or `worker-0/proxy` for a container other than the one that trains."""
    name = progress.short_name(pod.key.name)
    return f"{name}/{container}" if container else name
