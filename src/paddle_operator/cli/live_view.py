"""Shows a job that is followed: on a terminal a table that changes below the logs, elsewhere one plain line a fact."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paddle_operator.cli.deadline_text import end_told, tries_told
from paddle_operator.cli.job_progress import JobProgress, PodProgress, headline, reason_of, state_in_words
from paddle_operator.cli.training_progress import OWN_PROGRESS
from paddle_operator.kube.objects import Pod
from paddle_operator.plan.children import Job

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow")
REFRESHES_A_SECOND = 4
MOST_ROWS = 16


class PlainScreen:
    """For pipes, files and CI: nothing is ever drawn twice."""

    def __init__(self, scene: JobProgress) -> None:
        self.scene = scene
        self._said = self._ends = ""

    def job(self, job: Job) -> None:
        self.scene.job = job
        now = datetime.now(UTC)
        says = "; ".join(filter(None, [reason_of(job), tries_told(job, job.status.next_attempt_time or now)]))
        says = f"{job.key.name}  {job.status.phase or 'Pending'}: {says}"
        if job.status.phase and says != self._said:
            self._said = says
            say(says)
        ends = end_told(job, now)
        if ends and ends != self._ends:  # again where a pause has moved it
            self._ends = ends
            say(f"{job.key.name}  {ends}: spec.activeDeadlineSeconds")

    def pod(self, pod: Pod) -> None:
        if self.scene.saw(pod):
            view = self.scene.actors[pod.key.name].view
            where = f"  {view.address}" if view.address else ""
            say(f"{self.scene.short(pod.key.name)}  {state_in_words(view)}{where}")

    def gone(self, pod: Pod) -> None:
        self.scene.left(pod)

    def line(self, pod: Pod, container: str, text: str) -> None:
        told = self.scene.heard(pod, text)
        shown = str(told) if told and OWN_PROGRESS in text else text
        say(f"{prefix(self.scene, pod, container)} | {shown}")


class Headlines(PlainScreen):
    """Only what becomes of the job as a whole, however many pods it has."""

    def pod(self, pod: Pod) -> None: ...
    def gone(self, pod: Pod) -> None: ...
    def line(self, pod: Pod, container: str, text: str) -> None: ...


class LiveScreen:
    """Logs scroll by; below them the pods, each with its state, its address and how far it is."""

    def __init__(self, scene: JobProgress, console: Console) -> None:
        self.scene = scene
        self._console = console
        self._live = Live(
            console=console, refresh_per_second=REFRESHES_A_SECOND, get_renderable=self._drawn, transient=True
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._live:
            yield

    def job(self, job: Job) -> None:
        self.scene.job = job

    def pod(self, pod: Pod) -> None:
        self.scene.saw(pod)

    def gone(self, pod: Pod) -> None:
        self.scene.left(pod)

    def line(self, pod: Pod, container: str, text: str) -> None:
        told = self.scene.heard(pod, text)
        if told and OWN_PROGRESS in text:
            return  # the table shows it
        name = prefix(self.scene, pod, container)
        self._console.print(Text.assemble((f"{name} | ", colour_of(name)), Text.from_ansi(text)), soft_wrap=True)

    def _drawn(self) -> Table:
        return drawn(self.scene, datetime.now(UTC))


def drawn(scene: JobProgress, now: datetime) -> Table:
    """The pods as a table under a headline that says how the job is, and why it does not run yet."""
    table = Table(box=None, pad_edge=False, title_justify="left", caption_justify="left", title_style="bold")
    title = headline(scene.job, now)
    table.title, table.min_width = title, len(title)  # or it would be broken at the width of the columns
    for title in ("pod", "state", "address", "progress"):
        table.add_column(title, no_wrap=True)
    actors = scene.in_order
    for actor in actors[:MOST_ROWS]:
        table.add_row(*_row(scene, actor))
    if len(actors) > MOST_ROWS:
        table.add_row(f"and {len(actors) - MOST_ROWS} more")
    if scene.job.status.phase != "Running" and (reason := reason_of(scene.job)):
        table.caption = reason
    return table


def _row(scene: JobProgress, actor: PodProgress) -> tuple[Text, str, str, str]:
    name = scene.short(actor.view.name)
    progress = str(actor.progress) if actor.progress else ""
    return Text(name, style=colour_of(name)), state_in_words(actor.view), actor.view.address, progress


def prefix(scene: JobProgress, pod: Pod, container: str) -> str:
    """Whose line it is: `worker-0`, or `worker-0/proxy` where a pod has more than the container that trains."""
    name = scene.short(pod.key.name)
    return f"{name}/{container}" if container else name


def colour_of(name: str) -> str:
    return COLOURS[sum(name.encode()) % len(COLOURS)]


def say(text: str) -> None:
    """One line, and at once: who reads a pipe waits for it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def warn(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
