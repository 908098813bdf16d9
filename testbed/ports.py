"""Finds free loopback ports for servers whose port is a flag.

They are below the ephemeral range, so that a restarted server finds its port still free.
"""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
MIN_PORT = 20_000
EPHEMERAL_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_FIRST_EPHEMERAL_PORT = 32_768  # Linux' default; macOS begins at 49152


def find_free_ports(count: int) -> list[int]:
    """Ports that are free now. Another process may still take one before the caller binds it."""
    ephemeral = first_ephemeral_port()
    limit = (
        ephemeral if ephemeral > MIN_PORT + 1_000 else DEFAULT_FIRST_EPHEMERAL_PORT
    )  # in some containers all ports are ephemeral
    free: list[int] = []
    for port in random.SystemRandom().sample(range(MIN_PORT, limit), k=limit - MIN_PORT):
        if is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"fewer than {count} ports are free between {MIN_PORT} and {limit} on {LOOPBACK}: stop some servers")


def first_ephemeral_port() -> int:
    if not EPHEMERAL_PORT_RANGE.exists():
        return DEFAULT_FIRST_EPHEMERAL_PORT
    return int(EPHEMERAL_PORT_RANGE.read_text().split()[0])


def is_free(port: int) -> bool:
    with socket.socket() as candidate:
        # As Go's servers do: connections in TIME_WAIT do not block the port.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
