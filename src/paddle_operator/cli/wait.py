"""paddlejob wait: waits until a job has finished; the exit code is the outcome."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import Phase
from paddle_operator.cli.deadline_text import format_retries
from paddle_operator.cli.exit_codes import CODE_BY_PHASE, NOT_YET, report_deleted_job
from paddle_operator.cli.job_progress import elapsed_seconds, status_message
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.client.job_watcher import JobWatcher, LatestJob
from paddle_operator.embedded.target import Target
from paddle_operator.kube.durations import human_duration
from paddle_operator.kube.objects import Key
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view


@with_target
def wait(
    *,
    target: Target,
    name: JobName,
    timeout: Annotated[float, typer.Option("--timeout", help="Maximum seconds to wait; 0 checks once.")] = 600,
) -> None:
    """Wait until a job has finished. Exit code: 0 completed, 1 failed, 2 deleted before its end, 3 not yet.

    A job that is restarted (spec.backoffLimit) or suspended has not finished.

    paddlejob wait mnist && echo trained
    """
    raise typer.Exit(asyncio.run(_wait(target, name, timeout)))


async def _wait(target: Target, name: str, timeout_seconds: float) -> int:
    async with target.client() as client:
        job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
        latest = LatestJob(job)
        ended: Job | None = job
        target.warn_if_stopped(job.status.phase)
        if job.status.phase == Phase.SUSPENDED and timeout_seconds:
            echo_error(f"{name} is Suspended and cannot finish until it is resumed: paddlejob resume {name}")
        if not job.finished and target.is_running:
            watching = JobWatcher(client, job, latest, with_logs=False).wait_finished()
            try:
                ended = await asyncio.wait_for(watching, timeout_seconds)
            except TimeoutError:
                ended = latest.job
        if ended is None:
            return await report_deleted_job(client, latest.job)
    return _print_status(ended, name, timeout_seconds)


def _print_status(job: Job, name: str, timeout_seconds: float) -> int:
    echo(status_line(job, datetime.now(UTC)))
    if not job.finished:
        phase = job.status.phase or "Pending"
        echo_error(f"{name} is still {phase} after {timeout_seconds:g} s; see paddlejob describe {name}")
        return NOT_YET
    return CODE_BY_PHASE[Phase(job.status.phase)]


def status_line(job: Job, now: datetime) -> str:
    """`mnist  Failed  after 12s  retries used: 1 of 1  mnist-worker-1 exited 137: it was killed`."""
    elapsed = f"after {human_duration(elapsed_seconds(job, now))}"
    parts = [job.key.name, job.status.phase or "Pending", elapsed, format_retries(job, now), status_message(job)]
    return "  ".join(filter(None, parts))
