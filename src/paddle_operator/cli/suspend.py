"""paddlejob suspend and resume: stop the pods of a job, and start it again later under the same name."""

import asyncio
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import Phase
from paddle_operator.cli.exit_codes import COMPLETED, FAILED, NOT_YET, REFUSED, report_deleted_job
from paddle_operator.cli.job_progress import JobProgress, status_message
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.cli.plain_view import StatusView
from paddle_operator.client.job_watcher import JobPredicate, JobWatcher
from paddle_operator.client.manifests import UsageError
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client
from paddle_operator.kube.objects import Key
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view

TimeoutOption = Annotated[float, typer.Option("--timeout", min=0, help="Maximum seconds to wait.")]


@with_target
def suspend(
    *,
    target: Target,
    name: JobName,
    wait: Annotated[bool, typer.Option(help="Wait until its pods are gone.")] = True,
    timeout: TimeoutOption = 600,
) -> None:
    """Suspend a job: its pods get their grace period and are deleted; the job remains, and no deadline runs.

    When it is resumed, a program that saves checkpoints continues from the last one; any other starts again.

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
    timeout: TimeoutOption = 600,
) -> None:
    """Resume a suspended job: it gets new pods, and its deadline continues with the time that was left.

    Exit code: 0 it runs or has completed, 1 it failed, 2 it cannot be resumed, 3 not yet.

    paddlejob resume mnist · paddlejob logs -f mnist
    """
    raise typer.Exit(asyncio.run(_resume(target, name, timeout if wait else None)))


async def _suspend(target: Target, name: str, timeout_seconds: float | None) -> int:
    async with target.client() as client:
        job = await _get_unfinished(target, client, name)
        if job.spec and job.spec.suspend:
            raise UsageError(f"{name} is already suspended; paddlejob resume {name} starts it again")
        patched = await _set_suspend(client, job, suspend=True)
        if not target.is_running:
            echo(f"{name} is suspended; no cluster is running, and paddlejob up keeps it suspended")
            return COMPLETED
        if timeout_seconds is None or not patched.is_ours:
            echo(f"suspend requested for {name}{_controller_hint(patched)}")
            return COMPLETED
        suspended = await _wait_until(
            client,
            patched,
            lambda job, pods: job.finished or (is_suspension_observed(job) and not pods),
            timeout_seconds,
        )
    if suspended is None or not is_suspension_observed(suspended):
        return _report_not_suspended(name, suspended, timeout_seconds)
    echo(f"{name} is suspended and its pods are gone; paddlejob resume {name} starts it again")
    return COMPLETED


async def _resume(target: Target, name: str, timeout_seconds: float | None) -> int:
    async with target.client() as client:
        job = await _get_unfinished(target, client, name)
        if job.spec and not job.spec.suspend:
            phase = job.status.phase or Phase.PENDING
            raise UsageError(f"{name} is not suspended ({phase}); paddlejob suspend {name} suspends it")
        patched = await _set_suspend(client, job, suspend=False)
        if not target.is_running:
            echo(f"{name} is resumed; no cluster is running: paddlejob up starts it")
            return COMPLETED
        if timeout_seconds is None or not patched.is_ours:
            echo(f"resume requested for {name}{_controller_hint(patched)}")
            return COMPLETED
        resumed = await _wait_until(
            client, patched, lambda job, _: job.finished or job.status.phase == Phase.RUNNING, timeout_seconds
        )
        if resumed is None:
            return await report_deleted_job(client, patched)
    if resumed.status.phase not in (Phase.RUNNING, Phase.COMPLETED, Phase.FAILED):
        echo_error(f"{name} is not Running after {timeout_seconds:g} s; see paddlejob describe {name}")
        return NOT_YET
    return FAILED if resumed.status.phase == Phase.FAILED else COMPLETED


async def _get_unfinished(target: Target, client: Client, name: str) -> Job:
    """The job. Raises NotFound, and UsageError if it has finished or is being deleted."""
    job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
    if job.metadata.deletion_timestamp:
        raise UsageError(f"{name} is being deleted: when it is gone, run its YAML again with paddlejob run")
    if job.finished:
        raise UsageError(
            f"{name} has finished ({job.status.phase}) and cannot be suspended or resumed: "
            "run its YAML again with paddlejob run"
        )
    return job


async def _set_suspend(client: Client, job: Job, *, suspend: bool) -> Job:
    patch = {"metadata": {"uid": job.uid}, "spec": {"suspend": suspend}}
    return job_view(await client.merge(PADDLE_JOBS, job.key, patch))


def _controller_hint(job: Job) -> str:
    return f"; its controller is {job.spec.managed_by}" if job.spec and not job.is_ours else ""


def is_suspension_observed(job: Job) -> bool:
    """The phase alone may be older than the last resume."""
    return job.status.phase == Phase.SUSPENDED and job.status.observed_generation >= job.metadata.generation


async def _wait_until(client: Client, job: Job, predicate: JobPredicate, timeout_seconds: float) -> Job | None:
    """The job when the predicate holds, or its newest state at the timeout; None if it was deleted."""
    view = StatusView(JobProgress(job))
    watcher = JobWatcher(client, job, view, with_logs=False)
    try:
        return await asyncio.wait_for(watcher.wait_until(predicate), timeout_seconds)
    except TimeoutError:
        return view.progress.job


def _report_not_suspended(name: str, job: Job | None, timeout_seconds: float) -> int:
    if job is None:
        echo_error(f"{name} was deleted meanwhile")
        return REFUSED
    if job.finished:
        echo_error(f"{name}  {job.status.phase} before it could be suspended: {status_message(job)}")
        return FAILED if job.status.phase == Phase.FAILED else REFUSED
    echo_error(f"{name} is not suspended after {timeout_seconds:g} s; see paddlejob describe {name}")
    return NOT_YET
