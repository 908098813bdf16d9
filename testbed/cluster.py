"""A control plane in the background for manual use: `make cluster` and `make cluster-down`.

Its state is in .cluster/ of this checkout. The serving process holds the lock there: a pid file could be stale.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from testbed.assets import ensure_binaries, kubernetes_version
from testbed.control_plane import ControlPlane
from testbed.servers import ServerStartError
from testbed.toolchain import AssetsError

CHECKOUT = Path(__file__).parent.parent
POLL_SECONDS = 0.1


class BackgroundCluster:
    """The control plane whose state is in one folder, running or not."""

    def __init__(self, state: Path) -> None:
        self.kubeconfig = state / "kubeconfig"
        self._state = state
        self._lock = state / "lock"
        self._log = state / "log"

    def up(self) -> None:
        """Start a control plane in the background unless one runs, and print how to reach it. Raises ServerStartError.

        Shell commands go to standard output, status messages to standard error: eval "$(make -s cluster)".
        """
        self._state.mkdir(exist_ok=True)
        programs = ensure_binaries()  # in the foreground, so that a build shows its progress
        if self.serving_pid():
            print_status("the control plane is already running")
            while not self.kubeconfig.exists() and self.serving_pid():  # it may still be starting
                time.sleep(POLL_SECONDS)
        else:
            self._start_in_background()
            print_status(f"Kubernetes {kubernetes_version()} is running; stop it with: make cluster-down")
        print_status(f"kubectl of the same version: {programs.kubectl}")
        print(f"export KUBECONFIG={self.kubeconfig}")

    def _start_in_background(self) -> None:
        self.kubeconfig.unlink(missing_ok=True)
        with self._log.open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "testbed.cluster", "serve", str(self._state)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it must outlive this shell
            )
        while not self.kubeconfig.exists():
            if process.poll() is not None:
                raise ServerStartError(f"the control plane did not start:\n{self._log.read_text()}")
            time.sleep(POLL_SECONDS)

    def serve(self) -> None:
        """Run a control plane until SIGTERM. Raises ServerStartError."""
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        with self._lock.open("a+") as lock:
            if not try_lock(lock):
                raise ServerStartError("another control plane of this checkout is being started: make cluster")
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            with ControlPlane.start(ensure_binaries()) as control_plane:
                complete = self.kubeconfig.with_suffix(".new")
                shutil.copy(control_plane.kubeconfig, complete)  # with its mode, 0600
                complete.rename(self.kubeconfig)
                stopping.wait()
            self.kubeconfig.unlink()

    def down(self) -> None:
        """Stop the control plane; returns when its processes and files are gone."""
        pid = self.serving_pid()
        if not pid:
            print_status("no control plane of this checkout is running")
            return
        os.kill(pid, signal.SIGTERM)
        with self._lock.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when it has ended
        shutil.rmtree(self._state)
        print_status("the control plane has stopped")

    def serving_pid(self) -> int:
        """The process that holds the lock, or 0."""
        if not self._lock.exists():
            return 0
        with self._lock.open("a+") as lock:
            if try_lock(lock):
                return 0
            lock.seek(0)
            return int(lock.read() or 0)


def try_lock(lock: TextIO) -> bool:
    """Whether this process got the lock, which it then holds until the file is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def print_status(message: str) -> None:
    print(message, file=sys.stderr)


def main(verb: str, state: Path) -> None:
    cluster = BackgroundCluster(state)
    try:
        {"up": cluster.up, "down": cluster.down, "serve": cluster.serve}[verb]()
    except (AssetsError, ServerStartError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else CHECKOUT / ".cluster")
