"""Which ports of the loopback address are free for servers that must be told their port before they start?

They lie below the range from which the kernel gives ports to outgoing connections, so that a server which is stopped
and started again finds its port still free.
"""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
FIRST_PORT = 20_000
KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
KERNEL_RANGE_ELSEWHERE = 32_768  # Linux' default; macOS begins at 49152


def find_free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now. Another process may still come first: who listens must cope with that."""
    below = first_ephemeral_port()
    last = below if below > FIRST_PORT + 1_000 else KERNEL_RANGE_ELSEWHERE  # some containers give the kernel all ports
    free: list[int] = []
    for port in random.SystemRandom().sample(range(FIRST_PORT, last), k=last - FIRST_PORT):
        if is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"fewer than {count} ports are free between {FIRST_PORT} and {last} on {LOOPBACK}: end some servers")


def first_ephemeral_port() -> int:
    if not KERNEL_RANGE.exists():
        return KERNEL_RANGE_ELSEWHERE
    return int(KERNEL_RANGE.read_text().split()[0])


def is_free(port: int) -> bool:
    with socket.socket() as candidate:
        # As Go's servers do: a connection that lingers from an earlier server is no hindrance.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
