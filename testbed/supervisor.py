"""Owns the servers of one control plane and ends them when their owner is gone, however it went.

The owner holds the other end of standard input: the end of that file is the one notice that even SIGKILL gives.
Requests are lines of JSON there, answers lines of JSON on standard output. Only the standard library is needed.
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
    """Every server that was ever started here, by name and in the order of their first start."""

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
                # Safe here, where there is one thread: the parent's death is told to the thread's children.
                preexec_fn=partial(die_with, os.getpid()) if sys.platform == "linux" else None,
            )
        self._processes[name] = process
        return process.pid

    def stop(self, name: str) -> int:
        """The exit code of a server that was asked to end, and made to after the grace period."""
        return end([self._processes[name]], self._grace_seconds)[0]

    def kill(self, name: str) -> int:
        """The exit code of a server that had no say."""
        self._processes[name].kill()
        return self._processes[name].wait()

    def exit_code(self, name: str) -> int | None:
        """None while the server runs."""
        return self._processes[name].poll()

    def end(self) -> None:
        """End all; the first that was started is etcd and goes last.

        An API server whose etcd went first was still there 14 minutes after SIGTERM, holding its port.
        """
        processes = list(self._processes.values())
        end(processes[1:], self._grace_seconds)
        end(processes[:1], self._grace_seconds)


def end(processes: list[subprocess.Popen[bytes]], grace_seconds: float) -> list[int]:
    """The exit codes of processes that get SIGTERM now and SIGKILL after the grace period."""
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


def die_with(supervisor: int) -> None:
    """Runs in the child before exec: should the supervisor itself be killed, the kernel takes the server along."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it was gone before the kernel was asked
        os._exit(1)


def answer(servers: Servers, request: dict[str, Any]) -> dict[str, Any]:
    """What to say to one request; a request that cannot be met is answered, so that the owner can say why."""
    try:
        match request:
            case {"do": "start", "name": name, "command": command, "log": log}:
                return {"pid": servers.start(name, command, log)}
            case {"do": "stop", "name": name}:
                return {"exit_code": servers.stop(name)}
            case {"do": "kill", "name": name}:
                return {"exit_code": servers.kill(name)}
            case {"do": "look", "name": name}:
                return {"exit_code": servers.exit_code(name)}
            case _:
                return {"error": f"the supervisor knows no request such as {request}"}
    except OSError as error:
        return {"error": str(error)}
    except KeyError as error:
        return {"error": f"{error.args[0]} was never started: start it first"}


def main(directory: str, grace_seconds: float) -> None:
    """Serve requests until the owner is gone, then end the servers and remove their directory."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's, who will close the pipe
    servers = Servers(grace_seconds)
    try:
        for line in sys.stdin:
            print(json.dumps(answer(servers, json.loads(line))), flush=True)
    except BrokenPipeError:
        pass  # nobody reads the answer: the owner is gone
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop the ending half-way
        servers.end()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
