"""`paddlejob`: one verb a file; what goes wrong is one sentence and an exit code, never a traceback."""

import os
import sys
from collections.abc import Sequence

import typer

from paddle_operator import __version__
from paddle_operator.cli.cluster import down, kubeconfig, up
from paddle_operator.cli.delete import delete
from paddle_operator.cli.describe import describe
from paddle_operator.cli.events import events
from paddle_operator.cli.exit_codes import INTERRUPTED, NOBODY_READS, REFUSED
from paddle_operator.cli.get import get
from paddle_operator.cli.live_view import say, warn
from paddle_operator.cli.logs import logs
from paddle_operator.cli.run import run
from paddle_operator.cli.suspend import resume, suspend
from paddle_operator.cli.wait import wait
from paddle_operator.client.manifests import CannotBeUsed
from paddle_operator.embedded.state import AlreadyRuns
from paddle_operator.kube.errors import APIStatusError, KubeError, NotFound, RunnableFailed
from paddle_operator.kube.process import raise_recursion_limit
from paddle_operator.plan.job_view import PADDLE_JOBS

app = typer.Typer(
    name="paddlejob",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run PaddlePaddle training from one YAML: on this machine, or on a Kubernetes cluster.\n\n"
    "Without --kubeconfig, --context or KUBECONFIG, commands are about the embedded cluster of this machine.\n\n"
    "Try: paddlejob run deploy/examples/wide_and_deep.yaml",
)
for verb in (run, get, describe, logs, wait, events, suspend, resume, delete, up, down, kubeconfig):
    app.command()(verb)


def _tell_version(wanted: bool) -> None:
    if wanted:
        say(__version__)
        raise typer.Exit


@app.callback()
def shared(
    version: bool = typer.Option(  # the callback has told it before we are called
        False, "--version", help="Print the version.", is_eager=True, callback=_tell_version
    ),
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    raise_recursion_limit()
    try:
        code = app(list(arguments) if arguments is not None else None, standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if is_cut_off(error):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's last flush would complain
            return NOBODY_READS
        if isinstance(
            code := getattr(error, "exit_code", None), int
        ):  # of the command line's own, whose class is typer's
            error.show()  # type: ignore[attr-defined]
            return code
        if told := sentence(error):
            warn(f"paddlejob: {told}")
            return REFUSED
        raise
    return code if isinstance(code, int) else 0


def is_cut_off(error: BaseException) -> bool:
    """Nobody reads our output any more; a task of a group may have found that out."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_cut_off, error.exceptions))
    return isinstance(error, BrokenPipeError)


def sentence(error: BaseException) -> str | None:
    """What a person is told; None for a defect of ours, which deserves its traceback."""
    if isinstance(error, BaseExceptionGroup):  # a task of a group brought it along
        return next(filter(None, map(sentence, error.exceptions)), None)
    if isinstance(error, APIStatusError):
        return refusal_in_words(error)
    if isinstance(error, CannotBeUsed | AlreadyRuns | KubeError | RunnableFailed):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return None


def refusal_in_words(error: APIStatusError) -> str:
    """The API server's own words; each of several complaints on a line of its own."""
    causes = error.status.details.causes if error.status.details else ()
    if len(causes) > 1:
        return "\n  ".join([f"{error.about} is refused:", *(f"{each.field}: {each.message}" for each in causes)])
    if isinstance(error, NotFound) and f" {PADDLE_JOBS} " in error.about:
        return f"{error}; paddlejob get lists what there is, with -A in every namespace"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
