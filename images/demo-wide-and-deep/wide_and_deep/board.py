"""Where the workers of a job with parameter servers wait for each other, whatever the job's `withGloo` says.

fleet.util.barrier() and all_gather() need gloo; without it they return at once, with no more than a warning. Worker 0
listens at its own endpoint, which Paddle leaves unused in this mode.
"""

import json
import os
import socket
import socketserver
import threading
import time
from collections import defaultdict


class Board:
    """Every worker pins a note to a topic and goes on when all have: a barrier that carries a text."""

    def __init__(self, rank: int, endpoints: list[str]) -> None:
        self._rank = rank
        host, port = endpoints[0].split(":")
        self._address = (host, int(port))
        self._server = _Server(self._address, len(endpoints)) if rank == 0 else None

    def notes(self, topic: str, note: str = "") -> list[str]:
        """What all workers pinned to the topic, by rank. One that was started again finds what was there before."""
        if self._server:
            return self._server.after_all(topic, note)
        while True:
            try:
                with socket.create_connection(self._address) as connection, connection.makefile("rw") as lines:
                    lines.write(json.dumps([topic, self._rank, note]) + "\n")
                    lines.flush()
                    if answer := lines.readline():
                        return [str(each) for each in json.loads(answer)]
            except OSError:
                pass  # worker 0 is not there yet, or was started again
            time.sleep(0.1)

    def close(self) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128
    daemon_threads = True  # a worker 0 that fails ends, whoever waits for it

    def __init__(self, address: tuple[str, int], workers: int) -> None:
        # At its own address only: on a laptop the parameter servers listen at the same port of other addresses.
        super().__init__((os.environ.get("POD_IP", address[0]), address[1]), _Reader)
        self._workers = workers
        self._notes: defaultdict[str, dict[int, str]] = defaultdict(dict)
        self._told: defaultdict[str, set[int]] = defaultdict(set)
        self._changed = threading.Condition()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def pinned(self, topic: str, rank: int, note: str) -> list[str]:
        with self._changed:
            notes = self._notes[topic]
            notes[rank] = note
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(notes) == self._workers)
            return [notes[each] for each in range(self._workers)]

    def told(self, topic: str, rank: int) -> None:
        with self._changed:
            self._told[topic].add(rank)
            self._changed.notify_all()

    def after_all(self, topic: str, note: str) -> list[str]:
        """For worker 0, which leaves last: in a barrier of gloo it would hold Python's lock, and nobody be answered."""
        notes = self.pinned(topic, 0, note)
        with self._changed:
            self._changed.wait_for(lambda: len(self._told[topic]) == self._workers - 1)
        return notes


class _Reader(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        topic, rank, note = json.loads(self.rfile.readline())
        try:
            self.wfile.write(json.dumps(self.server.pinned(topic, rank, note)).encode() + b"\n")
        finally:
            self.server.told(topic, rank)
