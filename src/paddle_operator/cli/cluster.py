"""paddlejob up, down and kubeconfig: the embedded cluster as a process of its own."""

import asyncio
import os
import shutil
import signal
import time
from typing import Annotated

import typer

from paddle_operator.cli.options import with_target
from paddle_operator.cli.output import echo
from paddle_operator.client.manifests import UsageError
from paddle_operator.embedded.state import State
from paddle_operator.embedded.target import Target

STOP_TIMEOUT_SECONDS = 120.0
STOP_POLL_SECONDS = 0.05


@with_target
def up(
    *,
    target: Target,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Run here until Ctrl-C, and log to the terminal.")
    ] = False,
) -> None:
    """Start the embedded cluster in the background, for jobs and for kubectl.

    paddlejob up · kubectl --kubeconfig $(paddlejob kubeconfig) get pdj
    """
    from paddle_operator.embedded.process import main, start_cluster  # the operator and the local cluster

    state = target.state
    if running := state.running_cluster():
        echo(f"the cluster is already running (process {running.pid}): {running.url}")
        return
    if foreground:
        raise typer.Exit(main(["--state", str(state.directory)]))
    cluster = asyncio.run(start_cluster(state))
    echo(f"the cluster is running (process {cluster.pid}): {cluster.url}")
    echo(f"export KUBECONFIG={state.kubeconfig}")


@with_target
def down(
    *,
    target: Target,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its state, too: jobs, logs and volumes.")] = False,
) -> None:
    """Stop the embedded cluster; its pods get their grace period. Its state is kept, unless --purge is given.

    paddlejob down · paddlejob down --purge
    """
    state = target.state
    running = state.running_cluster()
    if running:
        os.kill(running.pid, signal.SIGTERM)
        _wait_stopped(state, running.pid)
        echo("the cluster is stopped")
    else:
        echo("no cluster is running")
    if purge and state.directory.exists():
        if not state.exists and any(state.directory.iterdir()):
            raise UsageError(f"{state.directory} is not the state of a cluster, so it is not deleted: check --state")
        shutil.rmtree(state.directory)
        echo(f"deleted {state.directory}")


def _wait_stopped(state: State, pid: int) -> None:
    from paddle_operator.local.sandbox.sandbox import is_alive

    deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
    while state.running_cluster() or is_alive(pid):  # the lock is released a moment before the process ends
        if time.monotonic() > deadline:
            raise UsageError(
                f"process {pid} did not end within {STOP_TIMEOUT_SECONDS:g} s: read {state.log}, or kill it"
            )
        time.sleep(STOP_POLL_SECONDS)


@with_target
def kubeconfig(*, target: Target) -> None:
    """Print the path of the embedded cluster's kubeconfig.

    export KUBECONFIG=$(paddlejob kubeconfig)
    """
    if not target.state.kubeconfig.exists():
        raise UsageError("there is no embedded cluster yet: start it with paddlejob up")
    echo(str(target.state.kubeconfig))
