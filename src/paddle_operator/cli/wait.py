"""paddlejob wait: until a job has finished; the exit code says how."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import Phase
from paddle_operator.cli.deadline_text import tries_told
from paddle_operator.cli.deleted_job import CODE_OF, told_of_gone
from paddle_operator.cli.exit_codes import NOT_YET
from paddle_operator.cli.job_progress import reason_of, seconds_of
from paddle_operator.cli.live_view import say, warn
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.client.job_watcher import Follower, Silent
from paddle_operator.embedded.target import Target
from paddle_operator.kube.durations import human_duration
from paddle_operator.kube.objects import Key
from paddle_operator.plan.children import Job
from paddle_operator.plan.job_view import PADDLE_JOBS, job_view


@with_target
def wait(
    *,
    target: Target,
    name: JobName,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most; 0 looks once.")] = 600,
) -> None:
    """Wait until a job has finished. Exit code: 0 completed, 1 failed, 2 it was deleted before its end, 3 not yet.

    A job that tries again (spec.backoffLimit) or is suspended has not finished.

    paddlejob wait mnist && echo trained
    """
    raise typer.Exit(asyncio.run(_wait(target, name, timeout)))


async def _wait(target: Target, name: str, seconds: float) -> int:
    async with target.client() as client:
        job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
        screen = Silent(job)
        ended: Job | None = job
        target.tell_if_asleep(job.status.phase)
        if job.status.phase == Phase.SUSPENDED and seconds:
            warn(f"{name} is Suspended, and does not finish before somebody resumes it: paddlejob resume {name}")
        if not job.finished and not target.is_asleep:
            try:
                ended = await asyncio.wait_for(Follower(client, job, screen, with_logs=False).until_finished(), seconds)
            except TimeoutError:
                ended = screen.seen
        if ended is None:
            return await told_of_gone(client, screen.seen)
    return told(ended, name, seconds)


def told(job: Job, name: str, seconds: float) -> int:
    say(one_line(job, datetime.now(UTC)))
    if not job.finished:
        phase = job.status.phase or "Pending"
        warn(f"{name} is still {phase} after {seconds:g} s. To see why: paddlejob describe {name}")
        return NOT_YET
    return CODE_OF[Phase(job.status.phase)]


def one_line(job: Job, now: datetime) -> str:
    """`mnist  Failed  after 12s  tries used: 1 of 1  mnist-worker-1 exited 137: it was killed`."""
    took = human_duration(seconds_of(job, now))
    parts = [job.key.name, job.status.phase or "Pending", f"after {took}", tries_told(job, now), reason_of(job)]
    return "  ".join(filter(None, parts))
