"""A control plane for hands: it stays in the background until it is ended, by `make cluster` and `make cluster-down`.

Its state is in .cluster/ of this checkout. Whoever serves holds the lock there, so that nobody has to guess from a pid.
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

from testbed.assets import binaries, kubernetes_version
from testbed.control_plane import ControlPlane
from testbed.servers import ServerStartError
from testbed.toolchain import AssetsError

CHECKOUT = Path(__file__).parent.parent
POLL_SECONDS = 0.1


class Cluster:
    """The control plane whose state is in one folder: there is one or none."""

    def __init__(self, state: Path) -> None:
        self.kubeconfig = state / "kubeconfig"
        self._state = state
        self._lock = state / "lock"
        self._log = state / "log"

    def up(self) -> None:
        """Start a control plane in the background unless there is one, and print how to reach it. Raises ServerStartError.

        What a shell can evaluate goes to standard output, the prose to standard error: eval "$(make -s cluster)".
        """
        self._state.mkdir(exist_ok=True)
        programs = binaries()  # here and not in the background, so that a build can be watched
        if self.serving_pid():
            tell("the control plane is already there")
            while not self.kubeconfig.exists() and self.serving_pid():  # or nearly so
                time.sleep(POLL_SECONDS)
        else:
            self._start_in_background()
            tell(f"Kubernetes {kubernetes_version()} is running; end it with: make cluster-down")
        tell(f"kubectl of the same version: {programs.kubectl}")
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
                start_new_session=True,  # it outlives this shell
            )
        while not self.kubeconfig.exists():
            if process.poll() is not None:
                raise ServerStartError(f"the control plane did not start:\n{self._log.read_text()}")
            time.sleep(POLL_SECONDS)

    def serve(self) -> None:
        """Run a control plane until SIGTERM. Raises ServerStartError."""
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        with self._lock.open("a+") as lock:
            if not taken(lock):
                raise ServerStartError("another control plane of this checkout is being started: make cluster")
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            with ControlPlane.start(binaries()) as control_plane:
                complete = self.kubeconfig.with_suffix(".new")
                shutil.copy(control_plane.kubeconfig, complete)  # with its mode, 0600
                complete.rename(self.kubeconfig)
                ended.wait()
            self.kubeconfig.unlink()

    def down(self) -> None:
        """End the control plane; returns when nothing of it is left."""
        pid = self.serving_pid()
        if not pid:
            tell("no control plane of this checkout is running")
            return
        os.kill(pid, signal.SIGTERM)
        with self._lock.open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # given back when it has ended
        shutil.rmtree(self._state)
        tell("the control plane has ended")

    def serving_pid(self) -> int:
        """The process that holds the lock, or 0."""
        if not self._lock.exists():
            return 0
        with self._lock.open("a+") as lock:
            if taken(lock):
                return 0
            lock.seek(0)
            return int(lock.read() or 0)


def taken(lock: TextIO) -> bool:
    """Whether the lock is ours now; it is as long as the file is open."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def tell(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def main(verb: str, state: Path) -> None:
    cluster = Cluster(state)
    try:
        {"up": cluster.up, "down": cluster.down, "serve": cluster.serve}[verb]()
    except (AssetsError, ServerStartError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else CHECKOUT / ".cluster")
