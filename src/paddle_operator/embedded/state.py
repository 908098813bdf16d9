"""The state directory of the embedded cluster, and whether a cluster runs there.

A running cluster holds a lock on the directory. The kernel releases it however the process ends, so a stale file
blocks nothing.
"""

import base64
import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from paddle_operator.local.atomic_file import write_atomic

APPLICATION_NAME = "paddle-operator"
KUBECONFIG_CONTEXT = "paddle-local"
DEFAULT_NAMESPACE = "default"
MAX_LOCK_ATTEMPTS = 20


class RunningCluster(msgspec.Struct, frozen=True):
    """How to reach the running cluster. Its file is a secret: it contains the token."""

    url: str
    token: str
    pid: int
    secure_url: str = ""  # for kubectl, which sends no token without TLS
    certificate: str = ""  # PEM
    block: int = 0  # pods have addresses in 127.<block>


class AlreadyRunning(Exception):
    """Another process runs the cluster of this directory."""


@dataclass(frozen=True)
class State:
    directory: Path
    cache: Path

    @classmethod
    def find(cls, environ: Mapping[str, str], directory: Path | None = None) -> "State":
        """From the flag, PADDLEJOB_STATE, or the XDG base directories."""
        home = Path(environ.get("HOME") or Path.home())
        named = directory or (Path(environ["PADDLEJOB_STATE"]) if environ.get("PADDLEJOB_STATE") else None)
        state = named or Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / APPLICATION_NAME
        cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / APPLICATION_NAME
        return cls(state.expanduser().absolute(), cache.expanduser().absolute())

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.directory / "cluster.log"

    @property
    def images(self) -> Path:
        return self.directory / "images.json"

    @property
    def volumes(self) -> Path:
        return self.directory / "volumes"

    @property
    def _cluster(self) -> Path:
        return self.directory / "cluster.json"

    @property
    def exists(self) -> bool:
        return (self.directory / "cluster.db").exists()

    def running_cluster(self) -> RunningCluster | None:
        """The cluster that runs in this directory, if one does."""
        try:
            with self._lock.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except FileNotFoundError:
            return None
        else:
            return None
        try:
            return msgspec.json.decode(self._cluster.read_bytes(), type=RunningCluster)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # it is starting or stopping

    def last_cluster(self) -> RunningCluster | None:
        """The cluster that ran here last: its port and token are reused, so an exported kubeconfig remains valid."""
        try:
            return msgspec.json.decode((self.directory / "last.json").read_bytes(), type=RunningCluster)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    @property
    def _lock(self) -> Path:
        return self.directory / "lock"

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the lock. Raises AlreadyRunning, or OSError if the directory cannot be created."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock.open("ab") as lock:
            if not _acquire(lock.fileno()):
                raise AlreadyRunning(f"another process runs the cluster of {self.directory}")
            self._cluster.unlink(missing_ok=True)  # left by a killed cluster: a reader would take it for this one
            try:
                yield
            finally:
                self._cluster.unlink(missing_ok=True)

    def announce(self, cluster: RunningCluster) -> None:
        """Write how to reach the cluster, once it accepts requests."""
        text = msgspec.json.encode(cluster)
        write_atomic(self.directory / "last.json", text)
        write_atomic(self.kubeconfig, render_kubeconfig(cluster).encode())
        write_atomic(self._cluster, text)


def _acquire(descriptor: int) -> bool:
    """Take the lock exclusively. A process that checks whether a cluster runs holds it shared for a moment."""
    attempts = MAX_LOCK_ATTEMPTS
    while attempts:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not _is_only_shared(descriptor):
                attempts -= 1
            time.sleep(0.01)
        else:
            return True
    return False


def _is_only_shared(descriptor: int) -> bool:
    """Whether only readers hold the lock: these waits do not count, since a slow host prolongs them."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def render_kubeconfig(cluster: RunningCluster) -> str:
    """For kubectl and other clients."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": KUBECONFIG_CONTEXT,
            "clusters": [
                {
                    "name": KUBECONFIG_CONTEXT,
                    "cluster": {
                        "server": cluster.secure_url,
                        "certificate-authority-data": base64.b64encode(cluster.certificate.encode()).decode(),
                    },
                }
            ],
            "users": [{"name": KUBECONFIG_CONTEXT, "user": {"token": cluster.token}}],
            "contexts": [
                {
                    "name": KUBECONFIG_CONTEXT,
                    "context": {
                        "cluster": KUBECONFIG_CONTEXT,
                        "user": KUBECONFIG_CONTEXT,
                        "namespace": DEFAULT_NAMESPACE,
                    },
                }
            ],
        },
        sort_keys=False,
    )
