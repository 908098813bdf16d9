"""`paddlejob`: one module a verb. Errors are one message and an exit code, never a traceback."""

import os
import sys
from collections.abc import Sequence

import typer

from paddle_operator import __version__
from paddle_operator.cli.cluster import down, kubeconfig, up
from paddle_operator.cli.delete import delete
from paddle_operator.cli.describe import describe
from paddle_operator.cli.events import events
from paddle_operator.cli.exit_codes import BROKEN_PIPE, INTERRUPTED, REFUSED
from paddle_operator.cli.get import get
from paddle_operator.cli.logs import logs
from paddle_operator.cli.output import echo, echo_error
from paddle_operator.cli.run import run
from paddle_operator.cli.suspend import resume, suspend
from paddle_operator.cli.wait import wait
from paddle_operator.client.manifests import UsageError
from paddle_operator.embedded.state import AlreadyRunning
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
    "Without --kubeconfig, --context or KUBECONFIG, commands use the embedded cluster of this machine.\n\n"
    "Try: paddlejob run deploy/examples/wide_and_deep.yaml",
)
for verb in (run, get, describe, logs, wait, events, suspend, resume, delete, up, down, kubeconfig):
    app.command()(verb)


def _print_version(requested: bool) -> None:
    if requested:
        echo(__version__)
        raise typer.Exit


@app.callback()
def global_options(
    version: bool = typer.Option(False, "--version", help="Print the version.", is_eager=True, callback=_print_version),
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
        if is_broken_pipe(error):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's last flush fails
            return BROKEN_PIPE
        if isinstance(code := getattr(error, "exit_code", None), int):  # typer's own class is private
            error.show()  # type: ignore[attr-defined]
            return code
        if message := error_message(error):
            echo_error(f"paddlejob: {message}")
            return REFUSED
        raise
    return code if isinstance(code, int) else 0


def is_broken_pipe(error: BaseException) -> bool:
    """Whether standard output was closed; a task of a group may have raised it."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_broken_pipe, error.exceptions))
    return isinstance(error, BrokenPipeError)


def error_message(error: BaseException) -> str | None:
    """The message of an expected error; None for a bug, which gets a traceback."""
    if isinstance(error, BaseExceptionGroup):  # raised by a task of a group
        return next(filter(None, map(error_message, error.exceptions)), None)
    if isinstance(error, APIStatusError):
        return describe_api_error(error)
    if isinstance(error, UsageError | AlreadyRunning | KubeError | RunnableFailed):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return None


def describe_api_error(error: APIStatusError) -> str:
    """The API server's message; each of several causes on its own line."""
    causes = error.status.details.causes if error.status.details else ()
    if len(causes) > 1:
        return "\n  ".join([f"{error.about} was refused:", *(f"{each.field}: {each.message}" for each in causes)])
    if isinstance(error, NotFound) and f" {PADDLE_JOBS} " in error.about:
        return f"{error}; list jobs with paddlejob get, or with paddlejob get -A in every namespace"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
