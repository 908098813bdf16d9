"""Runs the servers of one control plane as its children and terminates them when its owner has ended, even by SIGKILL.

The owner holds the other end of standard input: end-of-file there is the one sign that SIGKILL leaves, too.
Requests are lines of JSON on standard input, responses lines of JSON on standard output. Only stdlib is imported.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Any

PR_SET_PDEATHSIG = 1


class Servers:
    """The servers by name, in the order of their first start."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], log: str) -> int:
        """The process id of the new server, whose output is appended to the log. Raises OSError."""
        if name in self._processes and self.exit_code(name) is None:
            raise FileExistsError(f"{name} is still running: stop it first")
        with open(log, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Safe with one thread only: the signal is sent when the thread that forked ends.
                preexec_fn=partial(set_parent_death_signal, os.getpid()) if sys.platform == "linux" else None,
            )
        self._processes[name] = process
        return process.pid

    def stop(self, name: str) -> int:
        """Send SIGTERM, then SIGKILL after the grace period; returns the exit code."""
        return terminate([self._processes[name]], self._grace_seconds)[0]

    def kill(self, name: str) -> int:
        """Send SIGKILL; returns the exit code."""
        self._processes[name].kill()
        return self._processes[name].wait()

    def exit_code(self, name: str) -> int | None:
        """None while the server runs."""
        return self._processes[name].poll()

    def terminate_all(self) -> None:
        """Terminate all; the first one started is etcd and is terminated last.

        An API server whose etcd had ended first still ran 14 minutes after SIGTERM and held its port.
        """
        processes = list(self._processes.values())
        terminate(processes[1:], self._grace_seconds)
        terminate(processes[:1], self._grace_seconds)


def terminate(processes: list[subprocess.Popen[bytes]], grace_seconds: float) -> list[int]:
    """Send SIGTERM now and SIGKILL after the grace period; returns the exit codes."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + grace_seconds
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(timeout=max(0.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append(process.wait())
    return codes


def set_parent_death_signal(supervisor: int) -> None:
    """Runs in the child before exec: if the supervisor is killed, the kernel kills the server."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # the supervisor ended before prctl
        os._exit(1)


def handle_request(servers: Servers, request: dict[str, Any]) -> dict[str, Any]:
    """Handle one request; returns the response or an error for the owner."""
    try:
        match request:
            case {"action": "start", "name": name, "command": command, "log": log}:
                return {"pid": servers.start(name, command, log)}
            case {"action": "stop", "name": name}:
                return {"exit_code": servers.stop(name)}
            case {"action": "kill", "name": name}:
                return {"exit_code": servers.kill(name)}
            case {"action": "poll", "name": name}:
                return {"exit_code": servers.exit_code(name)}
            case _:
                return {"error": f"unknown supervisor request: {request}"}
    except OSError as error:
        return {"error": str(error)}
    except KeyError as error:
        return {"error": f"{error.args[0]} was not started: start it first"}


def main(directory: str, grace_seconds: float) -> None:
    """Handle requests until the owner has ended, then terminate the servers and remove their directory."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, which then closes the pipe
    servers = Servers(grace_seconds)
    try:
        for line in sys.stdin:
            print(json.dumps(handle_request(servers, json.loads(line))), flush=True)
    except BrokenPipeError:
        pass  # the owner has ended
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM must not interrupt the termination
        servers.terminate_all()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
