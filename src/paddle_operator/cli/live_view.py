"""Shows a watched job on a terminal: logs scroll, and a table of its pods below them is redrawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paddle_operator.cli.job_progress import JobProgress, PodProgress, format_pod_detail, headline, status_message
from paddle_operator.cli.plain_view import line_prefix
from paddle_operator.cli.training_progress import OWN_PROGRESS
from paddle_operator.kube.objects import Pod
from paddle_operator.plan.job_view import Job

COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow")
REFRESHES_PER_SECOND = 4
MAX_ROWS = 16


class LiveView:
    def __init__(self, progress: JobProgress, console: Console) -> None:
        self.progress = progress
        self._console = console
        self._live = Live(
            console=console, refresh_per_second=REFRESHES_PER_SECOND, get_renderable=self._table, transient=True
        )

    @contextmanager
    def draw(self) -> Iterator[None]:
        with self._live:
            yield

    def on_job(self, job: Job) -> None:
        self.progress.job = job

    def on_pod(self, pod: Pod) -> None:
        self.progress.update_pod(pod)

    def on_pod_deleted(self, pod: Pod) -> None: ...

    def on_log_line(self, pod: Pod, container: str, line: str) -> None:
        reported = self.progress.add_line(pod, line)
        if reported and OWN_PROGRESS in line:
            return  # the table shows it
        name = line_prefix(self.progress, pod, container)
        self._console.print(Text.assemble((f"{name} | ", colour_of(name)), Text.from_ansi(line)), soft_wrap=True)

    def _table(self) -> Table:
        return live_table(self.progress, datetime.now(UTC))


def live_table(progress: JobProgress, now: datetime) -> Table:
    """The pods below the job's headline, and the reason why it does not run yet."""
    table = Table(box=None, pad_edge=False, title_justify="left", caption_justify="left", title_style="bold")
    title = headline(progress.job, now)
    table.title, table.min_width = title, len(title)  # otherwise it wraps at the width of the columns
    for column in ("pod", "state", "address", "progress"):
        table.add_column(column, no_wrap=True)
    pods = progress.sorted_pods
    for pod in pods[:MAX_ROWS]:
        table.add_row(*_row(progress, pod))
    if len(pods) > MAX_ROWS:
        table.add_row(f"and {len(pods) - MAX_ROWS} more")
    if progress.job.status.phase != "Running" and (message := status_message(progress.job)):
        table.caption = message
    return table


def _row(progress: JobProgress, pod: PodProgress) -> tuple[Text, str, str, str]:
    name = progress.short_name(pod.view.name)
    training = str(pod.progress) if pod.progress else ""
    return Text(name, style=colour_of(name)), format_pod_detail(pod.view), pod.view.address, training


def colour_of(name: str) -> str:
    return COLOURS[sum(name.encode()) % len(COLOURS)]
