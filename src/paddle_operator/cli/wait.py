"""paddlejob wait: until a job has finished; the exit code says how."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import Phase
from paddle_operator.cli.exits import COMPLETED, FAILED, NOT_YET, REFUSED
from paddle_operator.cli.follow import Follower, Silent
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.cli.scene import duration_in_words, reason_of, seconds_of
from paddle_operator.cli.screens import say, warn
from paddle_operator.cli.target import Target
from paddle_operator.kube.objects import Key
from paddle_operator.plan.kinds import PADDLE_JOBS, job_view
from paddle_operator.plan.views import Job

CODE_OF = {Phase.COMPLETED: COMPLETED, Phase.FAILED: FAILED}


@with_target
def wait(
    *,
    target: Target,
    name: JobName,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most; 0 looks once.")] = 600,
) -> None:
    """Wait until a job has finished. Exit code: 0 completed, 1 failed, 3 not yet.

    paddlejob wait mnist && echo trained
    """
    raise typer.Exit(asyncio.run(_wait(target, name, timeout)))


async def _wait(target: Target, name: str, seconds: float) -> int:
    async with target.client() as client:
        job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
        screen = Silent(job)
        ended: Job | None = job
        target.tell_if_asleep(job.status.phase)
        if not job.finished and not target.is_asleep:
            try:
                ended = await asyncio.wait_for(Follower(client, job, screen, with_logs=False).until_finished(), seconds)
            except TimeoutError:
                ended = screen.seen
    return told(ended, name, seconds)


def told(job: Job | None, name: str, seconds: float) -> int:
    if job is None:
        warn(f"{name} was deleted before it had finished")
        return REFUSED
    say(one_line(job))
    if not job.finished:
        phase = job.status.phase or "Pending"
        warn(f"{name} is still {phase} after {seconds:g} s. To see why: paddlejob describe {name}")
        return NOT_YET
    return CODE_OF[Phase(job.status.phase)]


def one_line(job: Job) -> str:
    """`mnist  Failed  after 12s  mnist-worker-1 exited 137: it was killed`."""
    took = duration_in_words(seconds_of(job, datetime.now(UTC)))
    return "  ".join(filter(None, [job.key.name, job.status.phase or "Pending", f"after {took}", reason_of(job)]))
