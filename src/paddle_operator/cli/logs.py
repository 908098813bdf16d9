"""paddlejob logs: the logs of a job's pods, each line after its pod's name; with --follow, as they are written."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

import typer

from paddle_operator.api.paddlejob import Role
from paddle_operator.cli.job_progress import JobProgress
from paddle_operator.cli.options import JobName, with_target
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.cli.plain_view import line_prefix
from paddle_operator.client.job_watcher import JobWatcher, list_pods, name_and_index
from paddle_operator.client.manifests import UsageError
from paddle_operator.embedded.target import Target
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import Invalid, NotFound
from paddle_operator.kube.objects import Key, Pod
from paddle_operator.plan.job_view import PADDLE_JOBS, Job, job_view
from paddle_operator.plan.metadata import ROLE_LABEL, pod_name


@dataclass(frozen=True)
class LogSelection:
    """Which pods and which part of their logs."""

    role: Role | None
    index: int | None
    tail: int | None
    previous: bool
    container: str

    def selects(self, pod: Pod) -> bool:
        if self.role and pod.metadata.labels.get(ROLE_LABEL) != self.role:
            return False
        return self.index is None or name_and_index(pod.key.name)[1] == self.index


@with_target
def logs(
    *,
    target: Target,
    name: JobName,
    role: Annotated[Role | None, typer.Option("--role", help="Only pods of this role.")] = None,
    index: Annotated[int | None, typer.Option("--index", "-i", min=0, help="Only the pod with this index.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job has finished.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Only the last lines of each pod.")] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the container before its restart.")] = False,
    container: Annotated[str, typer.Option("--container", "-c", help="Of this container.")] = "",
) -> None:
    """Print the logs of a job.

    paddlejob logs mnist -f · paddlejob logs mnist --role worker --index 0 --tail 20
    """
    asyncio.run(_logs(target, name, LogSelection(role, index, tail, previous, container), follow=follow))


async def _logs(target: Target, name: str, options: LogSelection, *, follow: bool) -> None:
    async with target.client() as client:
        job = job_view(await client.get(PADDLE_JOBS, Key(target.namespace_of(client), name)))
        if follow and not job.finished:
            await JobWatcher(client, job, LogPrinter(job, options)).wait_finished()
            return
        pods = [pod for pod in await list_pods(client, job, options.role) if options.selects(pod)]
        if not pods:
            raise UsageError(_no_pods_message(job, options))
        for pod in pods:
            label = "" if len(pods) == 1 else f"{line_prefix(JobProgress(job), pod, '')} | "
            await _print_log(client, pod, label, options)


async def _print_log(client: Client, pod: Pod, label: str, options: LogSelection) -> None:
    try:
        lines = client.read_log(pod.key, container=options.container, tail=options.tail, previous=options.previous)
        async with aclosing(lines) as stream:
            async for line in stream:
                echo(label + line.decode(errors="replace"))
    except (Invalid, NotFound) as error:  # not started yet, or no such container: the other pods may have a log
        echo_error(f"{pod.key.name}: {error.reason_text}")


def _no_pods_message(job: Job, options: LogSelection) -> str:
    role, index = options.role, options.index
    which = f" {pod_name(job.key, role, index)}" if role and index is not None else ""
    if job.finished:
        return (
            f"{job.key.name} has no pod{which} any more: spec.cleanPodPolicy deleted its pods and their logs; "
            "set it to Never to keep them"
        )
    return f"{job.key.name} has no pod{which} yet; see paddlejob describe {job.key.name}"


class LogPrinter:
    """Prints the log lines of the selected pods."""

    def __init__(self, job: Job, options: LogSelection) -> None:
        self._progress, self._options = JobProgress(job), options

    def on_job(self, job: Job) -> None: ...
    def on_pod(self, pod: Pod) -> None: ...
    def on_pod_deleted(self, pod: Pod) -> None: ...

    def on_log_line(self, pod: Pod, container: str, line: str) -> None:
        if self._options.selects(pod):
            echo(f"{line_prefix(self._progress, pod, container)} | {line}")
