"""paddlejob up, down and kubeconfig: the embedded cluster as a process of its own."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Annotated

import typer

from paddle_operator.cli.live_view import say
from paddle_operator.cli.options import with_target
from paddle_operator.client.manifests import CannotBeUsed
from paddle_operator.embedded.state import Cluster, State
from paddle_operator.embedded.target import Target

START_SECONDS = 60.0  # a second, but a machine may have much else to do; one that dies is noticed at once
STOP_SECONDS = 120.0
LOOK_SECONDS = 0.05


@with_target
def up(
    *,
    target: Target,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay here until Ctrl-C, and log to the terminal.")
    ] = False,
) -> None:
    """Start the embedded cluster and leave it running, so that jobs and kubectl find it.

    paddlejob up · kubectl --kubeconfig $(paddlejob kubeconfig) get pdj
    """
    state = target.state
    if running := state.running():
        say(f"the cluster runs already (process {running.pid}): {running.url}")
        return
    if foreground:
        from paddle_operator.embedded.process import main

        raise typer.Exit(main(["--state", str(state.folder)]))
    cluster = asyncio.run(started(state))
    say(f"the cluster runs (process {cluster.pid}): {cluster.url}")
    say(f"export KUBECONFIG={state.kubeconfig}")


async def started(state: State) -> Cluster:
    """The cluster, as a process that outlives this one. Raises CannotBeUsed with what it said last."""
    state.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "paddle_operator.embedded.process", "--state", str(state.folder)]
    with state.log.open("ab") as log:
        process = subprocess.Popen(  # noqa: ASYNC220, S603  # it must outlive us, and is not waited for
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if (cluster := state.running()) and cluster.pid == process.pid:
            return cluster
        if process.poll() is not None:
            break
        await asyncio.sleep(LOOK_SECONDS)
    if (cluster := state.running()) is not None:
        return cluster  # another has been quicker
    raise CannotBeUsed(f"the cluster did not start; the end of {state.log}:\n{last_lines(state)}")


def last_lines(state: State, number: int = 10) -> str:
    try:
        return "\n".join(state.log.read_text(errors="replace").splitlines()[-number:])
    except OSError as error:
        return f"(it cannot be read: {error.strerror})"


@with_target
def down(
    *,
    target: Target,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its state, too: jobs, logs and volumes.")] = False,
) -> None:
    """Stop the embedded cluster; its pods are told to end first. Its state stays, unless --purge is given.

    paddlejob down · paddlejob down --purge
    """
    state = target.state
    running = state.running()
    if running:
        os.kill(running.pid, signal.SIGTERM)
        _wait_until_down(state, running.pid)
        say("the cluster is down")
    else:
        say("no cluster runs")
    if purge and state.folder.exists():
        if not state.exists and any(state.folder.iterdir()):
            raise CannotBeUsed(f"{state.folder} holds no cluster of ours, so it is not deleted")
        shutil.rmtree(state.folder)
        say(f"{state.folder} is deleted")


def _wait_until_down(state: State, pid: int) -> None:
    from paddle_operator.local.sandbox.sandbox import is_alive  # only here: it brings much along

    deadline = time.monotonic() + STOP_SECONDS
    while state.running() or is_alive(pid):  # it gives the folder back a moment before its process ends
        if time.monotonic() > deadline:
            raise CannotBeUsed(
                f"process {pid} has not ended within {STOP_SECONDS:g} s: look at {state.log}, or kill it"
            )
        time.sleep(LOOK_SECONDS)


@with_target
def kubeconfig(*, target: Target) -> None:
    """Print where the embedded cluster's kubeconfig is.

    export KUBECONFIG=$(paddlejob kubeconfig)
    """
    if not target.state.kubeconfig.exists():
        raise CannotBeUsed("there is no embedded cluster yet: start it with paddlejob up")
    say(str(target.state.kubeconfig))
