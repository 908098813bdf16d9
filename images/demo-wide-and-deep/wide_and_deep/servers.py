"""Calls from a worker to the parameter servers beside training; for some of them fleet has no public function."""

import os
import socket
import time

import paddle
from paddle.distributed import fleet
from paddle.distributed.ps.utils.public import get_the_one_recv_context


def wait_for_servers() -> None:
    """Wait until all servers listen. Call it after fleet.init: with gloo, server 0 listens once all workers joined.

    Paddle 3.0.0 does not wait itself: a worker that is ready before the servers fails with "push dense param failed".
    """
    for endpoint in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(","):
        host, port = endpoint.split(":")
        while not _listens(host, int(port)):
            time.sleep(0.2)


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def pull_dense() -> list[str]:
    """Fetch the dense parameters into the global scope and return their names."""
    runtime = fleet.fleet._runtime_handle
    by_table = get_the_one_recv_context(runtime.context)
    names: list[str] = runtime._pull_all_dense([paddle.static.global_scope()], runtime._send_ctx, by_table)
    return sorted(names)
