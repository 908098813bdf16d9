"""Watches a job until it has finished, and stops it on Ctrl-C, at a timeout, or when it can never start."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from paddle_operator.api.paddlejob import Phase
from paddle_operator.api.reasons import Reason
from paddle_operator.cli.exit_codes import COMPLETED, FAILED, INTERRUPTED, NOT_YET, report_deleted_job
from paddle_operator.cli.job_progress import JobProgress, status_message, summary
from paddle_operator.cli.live_view import LiveView
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.cli.plain_view import PlainView
from paddle_operator.client.job_watcher import JobObserver, JobWatcher, list_pods
from paddle_operator.client.submit import delete_and_wait
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import PODS, Pod
from paddle_operator.plan.job_view import Job
from paddle_operator.plan.status import RUNNING

# Of a local cluster: no other user can fix these, so waiting is useless.
PERMANENT_REASONS = frozenset(
    {Reason.IMAGE_PULL_FAILED, Reason.CREATE_CONTAINER_FAILED, Reason.INVALID, Reason.UNSCHEDULABLE}
)


@dataclass(frozen=True)
class WatchOptions:
    timeout_seconds: float | None = None
    owns_job: bool = True  # this command created the job, so it also stops it
    fail_if_stuck: bool = False  # stop a job that can never start


class StuckDetector:
    """Forwards everything to another observer, and sets an event when the job can never start."""

    def __init__(self, observer: JobObserver, stuck: asyncio.Event) -> None:
        self._observer, self._stuck = observer, stuck

    def on_job(self, job: Job) -> None:
        self._observer.on_job(job)
        running = next((each for each in job.status.conditions if each.type == RUNNING), None)
        if running and running.status == "False" and running.reason in PERMANENT_REASONS:
            self._stuck.set()

    def on_pod(self, pod: Pod) -> None:
        self._observer.on_pod(pod)

    def on_pod_deleted(self, pod: Pod) -> None:
        self._observer.on_pod_deleted(pod)

    def on_log_line(self, pod: Pod, container: str, line: str) -> None:
        self._observer.on_log_line(pod, container, line)


async def watch_until_finished(client: Client, job: Job, options: WatchOptions) -> int:
    """Show the job until it has finished and print its summary. Returns the exit code."""
    progress, console, stuck = JobProgress(job), Console(), asyncio.Event()
    view = LiveView(progress, console) if console.is_terminal else PlainView(progress)
    with handle_signals() as signals, view.draw() if isinstance(view, LiveView) else nullcontext():
        observer = StuckDetector(view, stuck) if options.fail_if_stuck else view
        watching = asyncio.ensure_future(JobWatcher(client, job, observer).wait_finished())
        interrupted, failed = (asyncio.ensure_future(each.wait()) for each in (signals.first, stuck))
        await asyncio.wait(
            (watching, interrupted, failed), timeout=options.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        code = INTERRUPTED if interrupted.done() else FAILED if failed.done() else NOT_YET
        if not watching.done():
            await _stop_if_owned(client, progress, options, signals, code)
            await _cancel(watching, interrupted, failed)
            return code
        await _cancel(interrupted, failed)
    ended = watching.result()
    return _print_summary(progress, ended) if ended else await report_deleted_job(client, progress.job)


def _print_summary(progress: JobProgress, job: Job) -> int:
    progress.job = job
    for line in summary(progress, datetime.now(UTC)):
        echo(line)
    return COMPLETED if job.status.phase == Phase.COMPLETED else FAILED


async def _stop_if_owned(
    client: Client, progress: JobProgress, options: WatchOptions, signals: "Signals", code: int
) -> None:
    """Stop a job that this command created; leave another one running."""
    name = progress.job.key.name
    if code == NOT_YET:
        echo_error(f"{name} did not finish within {options.timeout_seconds:g} s")
    if code == FAILED:
        echo_error(f"{name} cannot start here: {status_message(progress.job)}")
    if not options.owns_job:
        echo_error(f"{name} keeps running; delete it with paddlejob delete {name}")
        return
    hint = "; press Ctrl-C again to kill them" if code == INTERRUPTED else ""
    echo_error(f"stopping {name}: its pods get their grace period{hint}")
    await _stop(client, progress.job, signals)
    echo_error(f"{name} is stopped and deleted, with its logs")


async def _stop(client: Client, job: Job, signals: "Signals") -> None:
    """Delete the job; at the second signal, delete its pods without grace."""
    deleting = asyncio.ensure_future(delete_and_wait(client, job))
    second = asyncio.ensure_future(signals.second.wait())
    await asyncio.wait((deleting, second), return_when=asyncio.FIRST_COMPLETED)
    if not deleting.done():
        for pod in await list_pods(client, job):
            try:
                await client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
            except NotFound:
                continue
    await deleting
    await _cancel(second)


async def _cancel(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class Signals:
    """The first and the second SIGINT, SIGTERM or SIGHUP (a closed terminal)."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()

    def __call__(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


@contextmanager
def handle_signals() -> Iterator[Signals]:
    loop, signals = asyncio.get_running_loop(), Signals()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, signals)
    try:
        yield signals
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
