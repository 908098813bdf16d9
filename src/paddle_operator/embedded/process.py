"""The embedded cluster as a process of its own: what `paddlejob up` starts, and how it is started."""

import argparse
import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from paddle_operator.client.manifests import UsageError
from paddle_operator.embedded.cluster import cluster
from paddle_operator.embedded.state import AlreadyRunning, RunningCluster, State
from paddle_operator.kube.errors import KubeError, RunnableFailed
from paddle_operator.kube.log_format import TextLines, start_logging
from paddle_operator.kube.process import raise_recursion_limit
from paddle_operator.manager import loop_factory

log = logging.getLogger(__name__)

CLUSTER_START_TIMEOUT_SECONDS = 60.0  # it takes 1 s, longer on a busy host; a process that exits is noticed at once
START_POLL_SECONDS = 0.05
LOG_TAIL_LINES = 10


async def start_cluster(state: State) -> RunningCluster:
    """Start the cluster as a process that outlives this one. Raises UsageError with the end of its log."""
    state.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "paddle_operator.embedded.process", "--state", str(state.directory)]
    with state.log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220, S603  # it outlives this process
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    deadline = time.monotonic() + CLUSTER_START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if (running := state.running_cluster()) and running.pid == process.pid:
            return running
        if process.poll() is not None:
            break
        await asyncio.sleep(START_POLL_SECONDS)
    if (running := state.running_cluster()) is not None:
        return running  # another process was faster
    raise UsageError(f"the cluster did not start; the last lines of {state.log}:\n{_log_tail(state)}")


def _log_tail(state: State) -> str:
    try:
        return "\n".join(state.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
    except OSError as error:
        return f"(cannot be read: {error.strerror})"


async def serve(state: State) -> None:
    """Run the cluster until SIGTERM or SIGINT; a second signal kills the pods."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    async with cluster(state) as running:
        log.info("cluster started", extra={"url": running.url, "state": str(state.directory)})
        await stopping.wait()
        log.info("cluster stopping: pods get their grace period")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # a second signal ends this process, and the kernel kills the pods


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="paddlejob up", description=__doc__)
    parser.add_argument("--state", type=Path)
    state = State.find(os.environ, parser.parse_args(arguments).state)
    start_logging(TextLines(), logging.INFO)
    raise_recursion_limit()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(state))
    except AlreadyRunning as error:
        log.error("%s", error)  # noqa: TRY400  # the message is enough
        return 1
    except (RunnableFailed, KubeError, OSError) as error:
        log.error("cluster failed: %s", error)  # noqa: TRY400
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
