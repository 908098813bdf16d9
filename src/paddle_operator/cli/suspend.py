"""paddlejob suspend and resume: a job makes room for others, and goes on later under the same name."""

import asyncio
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import MANAGER, Phase
from paddle_operator.cli.deleted_job import told_of_gone
from paddle_operator.cli.exit_codes import COMPLETED, FAILED, NOT_YET, REFUSED
from paddle_operator.cli.job_progress import JobProgress, reason_of
from paddle_operator.cli.live_view import Headlines, say, warn
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.client.job_watcher import Claim, Follower
from paddle_operator.client.manifests import CannotBeUsed
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.plan.children import Job
from paddle_operator.plan.job_view import PADDLE_JOBS, job_view

Timeout = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")]


@with_target
def suspend(
    *,
    target: Target,
    name: JobName,
    wait: Annotated[bool, typer.Option(help="Wait until its pods are gone.")] = True,
    timeout: Timeout = 600,
) -> None:
    """Suspend a job: its pods are told to end and get their grace period; the job stays, and no deadline runs.

    A program that saves checkpoints goes on from the last one when the job is resumed; any other starts anew.

    Exit code: 0 suspended, 1 it failed meanwhile, 2 it cannot be suspended, 3 not yet.

    paddlejob suspend mnist · paddlejob resume mnist
    """
    raise typer.Exit(asyncio.run(_suspend(target, name, timeout if wait else None)))


@with_target
def resume(
    *,
    target: Target,
    name: JobName,
    wait: Annotated[bool, typer.Option(help="Wait until all its pods run.")] = True,
    timeout: Timeout = 600,
) -> None:
    """Resume a job that is suspended: it gets new pods, and its deadline runs on from where it stood.

    Exit code: 0 it runs or has completed, 1 it failed, 2 it cannot be resumed, 3 not yet.

    paddlejob resume mnist · paddlejob logs -f mnist
    """
    raise typer.Exit(asyncio.run(_resume(target, name, timeout if wait else None)))


async def _suspend(target: Target, name: str, seconds: float | None) -> int:
    async with target.client() as client:
        job = await _found(target, client, name)
        if job.spec and job.spec.suspend:
            raise CannotBeUsed(f"{name} is suspended already: paddlejob resume {name} starts it again")
        asked = await _asked(client, job, suspend=True)
        if target.is_asleep:
            say(f"{name} is suspended; no cluster runs, and paddlejob up will leave it so")
            return COMPLETED
        if seconds is None or is_anothers(asked):
            say(f"{name} is told to suspend{_by_whom(asked)}")
            return COMPLETED
        rests = await _until(client, asked, lambda job, pods: job.finished or _is_gone(job, pods), seconds)
    if rests is None or not is_suspended(rests):
        return _not_suspended(name, rests, seconds)
    say(f"{name} is suspended, and no pod of it is left; paddlejob resume {name} starts it again")
    return COMPLETED


async def _resume(target: Target, name: str, seconds: float | None) -> int:
    async with target.client() as client:
        job = await _found(target, client, name)
        if job.spec and not job.spec.suspend:
            phase = job.status.phase or Phase.PENDING
            raise CannotBeUsed(f"{name} is not suspended but {phase}: paddlejob suspend {name} would suspend it")
        asked = await _asked(client, job, suspend=False)
        if target.is_asleep:
            say(f"{name} is resumed; no cluster runs, and paddlejob up starts it")
            return COMPLETED
        if seconds is None or is_anothers(asked):
            say(f"{name} is told to resume{_by_whom(asked)}")
            return COMPLETED
        runs = await _until(client, asked, lambda job, _: job.finished or job.status.phase == Phase.RUNNING, seconds)
        if runs is None:
            return await told_of_gone(client, asked)
    if runs.status.phase not in (Phase.RUNNING, Phase.COMPLETED, Phase.FAILED):
        warn(f"{name} does not run after {seconds:g} s. To see why: paddlejob describe {name}")
        return NOT_YET
    return FAILED if runs.status.phase == Phase.FAILED else COMPLETED


async def _found(target: Target, client: Client, name: str) -> Job:
    """The job. Raises NotFound, and CannotBeUsed where it is past being suspended or resumed."""
    job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
    if job.metadata.deletion_timestamp:
        raise CannotBeUsed(f"{name} is being deleted: when it is gone, paddlejob run its YAML again")
    if job.finished:
        raise CannotBeUsed(
            f"{name} has finished ({job.status.phase}), and a finished job is not touched: "
            "paddlejob run its YAML to run it again"
        )
    return job


async def _asked(client: Client, job: Job, *, suspend: bool) -> Job:
    change = {"metadata": {"uid": job.uid}, "spec": {"suspend": suspend}}
    return job_view(await client.merge(PADDLE_JOBS, job.key, change))


def is_anothers(job: Job) -> bool:
    return job.spec is not None and job.spec.managed_by not in ("", MANAGER)


def _by_whom(job: Job) -> str:
    return f"; it is {job.spec.managed_by} that looks after it" if job.spec and is_anothers(job) else ""


def is_suspended(job: Job) -> bool:
    """And we know of it: the phase alone may be of before the last resume."""
    return job.status.phase == Phase.SUSPENDED and job.status.observed_generation >= job.metadata.generation


def _is_gone(job: Job, pods: int) -> bool:
    return is_suspended(job) and not pods


async def _until(client: Client, job: Job, claim: Claim, seconds: float) -> Job | None:
    """The job when the claim is true of it, or as it was seen last when time is up; None where it was deleted."""
    shown = Headlines(JobProgress(job))
    follower = Follower(client, job, shown, with_logs=False)
    try:
        return await asyncio.wait_for(follower.until(claim), seconds)
    except TimeoutError:
        return shown.scene.job


def _not_suspended(name: str, job: Job | None, seconds: float) -> int:
    """Somebody was quicker, or its end takes long."""
    if job is None:
        warn(f"{name} was deleted meanwhile")
        return REFUSED
    if job.finished:
        warn(f"{name}  {job.status.phase} before it could be suspended: {reason_of(job)}")
        return FAILED if job.status.phase == Phase.FAILED else REFUSED
    warn(f"{name} is not suspended after {seconds:g} s. To see why: paddlejob describe {name}")
    return NOT_YET
