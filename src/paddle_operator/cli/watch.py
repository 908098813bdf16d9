"""Stays with a job until it is over: shows it, and stops it where the user asks, time is up, or it can never start."""

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
from paddle_operator.cli.deleted_job import told_of_gone
from paddle_operator.cli.exit_codes import COMPLETED, FAILED, INTERRUPTED, NOT_YET
from paddle_operator.cli.job_progress import JobProgress, reason_of, summary
from paddle_operator.cli.live_view import LiveScreen, PlainScreen, say, warn
from paddle_operator.cli.logs import pods_of
from paddle_operator.client.job_watcher import Follower, Screen
from paddle_operator.client.submit import removed
from paddle_operator.kube.client import Client
from paddle_operator.kube.errors import NotFound
from paddle_operator.kube.objects import PODS, Pod
from paddle_operator.plan.children import Job
from paddle_operator.plan.status import RUNNING

# On a machine of one's own nobody comes and helps: these would be waited for in vain.
HOPELESS = frozenset({Reason.IMAGE_PULL_FAILED, Reason.CREATE_CONTAINER_FAILED, Reason.INVALID, Reason.UNSCHEDULABLE})


@dataclass(frozen=True)
class Terms:
    """How long a job is attended, whether it is ours to stop, and whether nobody else could help it start."""

    seconds: float | None = None
    ours: bool = True
    alone: bool = False


class Attended:
    """Passes on what is shown, and notices a job that can never start."""

    def __init__(self, screen: Screen, stuck: asyncio.Event) -> None:
        self._screen, self._stuck = screen, stuck

    def job(self, job: Job) -> None:
        self._screen.job(job)
        running = next((each for each in job.status.conditions if each.type == RUNNING), None)
        if running and running.status == "False" and running.reason in HOPELESS:
            self._stuck.set()

    def pod(self, pod: Pod) -> None:
        self._screen.pod(pod)

    def gone(self, pod: Pod) -> None:
        self._screen.gone(pod)

    def line(self, pod: Pod, container: str, text: str) -> None:
        self._screen.line(pod, container, text)


async def attend(client: Client, job: Job, terms: Terms) -> int:
    """Show the job until it is over, and say how it was; the answer is the exit code."""
    scene, console, stuck = JobProgress(job), Console(), asyncio.Event()
    screen = LiveScreen(scene, console) if console.is_terminal else PlainScreen(scene)
    with interrupts() as interrupted, screen.shown() if isinstance(screen, LiveScreen) else nullcontext():
        attended = Attended(screen, stuck) if terms.alone else screen
        following = asyncio.ensure_future(Follower(client, job, attended).until_finished())
        asked, hopeless = (asyncio.ensure_future(each.wait()) for each in (interrupted.first, stuck))
        await asyncio.wait((following, asked, hopeless), timeout=terms.seconds, return_when=asyncio.FIRST_COMPLETED)
        why = INTERRUPTED if asked.done() else FAILED if hopeless.done() else NOT_YET
        if not following.done():
            await part(client, scene, terms, interrupted, why)
            await end(following, asked, hopeless)
            return why
        await end(asked, hopeless)
    ended = following.result()
    return told(scene, ended) if ended else await told_of_gone(client, scene.job)


def told(scene: JobProgress, ended: Job) -> int:
    scene.job = ended
    for line in summary(scene, datetime.now(UTC)):
        say(line)
    return COMPLETED if ended.status.phase == Phase.COMPLETED else FAILED


async def part(client: Client, scene: JobProgress, terms: Terms, interrupted: "Interrupts", why: int) -> None:
    """Before its end: a job of ours is stopped, another's is left as it is."""
    name = scene.job.key.name
    if why == NOT_YET:
        warn(f"{name} was not finished within {terms.seconds:g} s")
    if why == FAILED:
        warn(f"{name} cannot start here: {reason_of(scene.job)}")
    if not terms.ours:
        warn(f"{name} is left as it is: paddlejob delete {name} ends it")
        return
    warn("stopping: the pods are told to end" + ("; Ctrl-C again ends them at once" if why == INTERRUPTED else ""))
    await stop(client, scene.job, interrupted)
    warn(f"{name} is stopped and deleted, its logs too")


async def stop(client: Client, job: Job, interrupted: "Interrupts") -> None:
    """With grace, or at once where the user has lost patience."""
    gently = asyncio.ensure_future(removed(client, job))
    at_once = asyncio.ensure_future(interrupted.second.wait())
    await asyncio.wait((gently, at_once), return_when=asyncio.FIRST_COMPLETED)
    if not gently.done():
        for pod in await pods_of(client, job):
            try:
                await client.delete(PODS, pod.key, uid=pod.uid, grace_seconds=0)
            except NotFound:
                continue
    await gently
    await end(at_once)


async def end(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class Interrupts:
    """Ctrl-C, and Ctrl-C again; a terminal that is closed counts as the first."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()

    def __call__(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    loop, interrupted = asyncio.get_running_loop(), Interrupts()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, interrupted)
    try:
        yield interrupted
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
