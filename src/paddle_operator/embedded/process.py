"""The embedded cluster as a process of its own, which `paddlejob up` starts."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from paddle_operator.embedded.cluster import cluster
from paddle_operator.embedded.state import AlreadyRuns, State
from paddle_operator.kube.errors import KubeError, RunnableFailed
from paddle_operator.kube.log_format import TextLines, start_logging
from paddle_operator.kube.process import raise_recursion_limit
from paddle_operator.manager import loop_factory

log = logging.getLogger(__name__)


async def serve(state: State) -> None:
    """Until SIGTERM or SIGINT; a second one ends the pods at once."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    async with cluster(state) as served:
        log.info("the cluster runs", extra={"url": served.url, "state": str(state.folder)})
        await stopping.wait()
        log.info("stopping: pods are told to end")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # the second one takes us, and the kernel takes the pods


def main(arguments: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(prog="paddlejob up", description=__doc__)
    flags.add_argument("--state", type=Path)
    state = State.of(os.environ, flags.parse_args(arguments).state)
    start_logging(TextLines(), logging.INFO)
    raise_recursion_limit()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(serve(state))
    except AlreadyRuns as error:
        log.error("%s", error)  # noqa: TRY400  # the sentence says it
        return 1
    except (RunnableFailed, KubeError, OSError) as error:
        log.error("ended: %s", error)  # noqa: TRY400
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
