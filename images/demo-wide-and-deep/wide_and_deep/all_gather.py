"""All-gather of strings between the workers of a parameter-server job, with or without gloo.

fleet.util.barrier() and all_gather() need gloo; without it they return at once with only a warning. Worker 0 listens at
its own endpoint, which Paddle does not use in this mode.
"""

import json
import os
import socket
import socketserver
import threading
import time
from collections import defaultdict


class AllGather:
    """Each worker contributes a value to a key and continues when all have: a barrier that carries data."""

    def __init__(self, rank: int, endpoints: list[str]) -> None:
        self._rank = rank
        host, port = endpoints[0].split(":")
        self._address = (host, int(port))
        self._server = _Server(self._address, len(endpoints)) if rank == 0 else None

    def gather(self, key: str, value: str = "") -> list[str]:
        """The values of all workers by rank. A restarted worker gets the values of before."""
        if self._server:
            return self._server.gather_and_exit_last(key, value)
        while True:
            try:
                with socket.create_connection(self._address) as connection, connection.makefile("rw") as lines:
                    lines.write(json.dumps([key, self._rank, value]) + "\n")
                    lines.flush()
                    if response := lines.readline():
                        return [str(each) for each in json.loads(response)]
            except OSError:
                pass  # worker 0 does not listen yet, or was restarted
            time.sleep(0.1)

    def close(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128
    daemon_threads = True  # a failing worker 0 exits even if others wait for it

    def __init__(self, address: tuple[str, int], workers: int) -> None:
        # Only at its own address: in local mode the parameter servers listen at the same port of other addresses.
        super().__init__((os.environ.get("POD_IP", address[0]), address[1]), _Reader)
        self._workers = workers
        self._values: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._answered: defaultdict[str, set[int]] = defaultdict(set)
        self._changed = threading.Condition()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def wait_for_all(self, key: str, rank: int, value: str) -> list[str]:
        with self._changed:
            values = self._values[key]
            values[rank] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(values) == self._workers)
            return [values[worker] for worker in range(self._workers)]

    def mark_answered(self, key: str, rank: int) -> None:
        with self._changed:
            self._answered[key].add(rank)
            self._changed.notify_all()

    def gather_and_exit_last(self, key: str, value: str) -> list[str]:
        """Worker 0 returns last: a gloo barrier after this would hold the GIL, and no worker would be answered."""
        values = self.wait_for_all(key, 0, value)
        with self._changed:
            self._changed.wait_for(lambda: len(self._answered[key]) == self._workers - 1)
        return values


class _Reader(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        key, rank, value = json.loads(self.rfile.readline())
        try:
            self.wfile.write(json.dumps(self.server.wait_for_all(key, rank, value)).encode() + b"\n")
        finally:
            self.server.mark_answered(key, rank)
