"""Where the embedded cluster keeps what it knows, and whether one runs.

Who runs it holds a lock on the folder: the kernel gives it back however the process ends, so a stale file misleads
nobody.
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

NAME = "paddle-operator"
CONTEXT = "paddle-local"
NAMESPACE = "default"
LOOKS = 20


class Cluster(msgspec.Struct, frozen=True):
    """How to reach the cluster that runs; the token makes the file a secret."""

    url: str
    token: str
    pid: int
    secure_url: str = ""  # for kubectl, which sends no token without TLS
    certificate: str = ""  # PEM
    block: int = 0  # pods have addresses in 127.<block>


class AlreadyRuns(Exception):
    """Another process has the cluster of this folder."""


@dataclass(frozen=True)
class State:
    folder: Path
    cache: Path

    @classmethod
    def of(cls, environ: Mapping[str, str], folder: Path | None = None) -> "State":
        """As the flag says, or PADDLEJOB_STATE, or where the desktop's rules put such things."""
        home = Path(environ.get("HOME") or Path.home())
        named = folder or (Path(environ["PADDLEJOB_STATE"]) if environ.get("PADDLEJOB_STATE") else None)
        state = named or Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / NAME
        cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / NAME
        return cls(state.expanduser().absolute(), cache.expanduser().absolute())

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.folder / "cluster.log"

    @property
    def images(self) -> Path:
        return self.folder / "images.json"

    @property
    def volumes(self) -> Path:
        return self.folder / "volumes"

    @property
    def _cluster(self) -> Path:
        return self.folder / "cluster.json"

    @property
    def exists(self) -> bool:
        return (self.folder / "cluster.db").exists()

    def running(self) -> Cluster | None:
        """The cluster that runs here, if one does."""
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
            return msgspec.json.decode(self._cluster.read_bytes(), type=Cluster)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # it is only just starting, or ending

    def last(self) -> Cluster | None:
        """What ran here last: its port and token are used again, so that a kubeconfig stays good."""
        try:
            return msgspec.json.decode((self.folder / "last.json").read_bytes(), type=Cluster)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    @property
    def _lock(self) -> Path:
        return self.folder / "lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """The folder is ours until we leave. Raises AlreadyRuns, or OSError where it cannot be made."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock.open("ab") as lock:
            if not _locked(lock.fileno()):
                raise AlreadyRuns(f"another process has the cluster of {self.folder}")
            self._cluster.unlink(missing_ok=True)  # of one that was killed: whoever only looks would be taken for it
            try:
                yield
            finally:
                self._cluster.unlink(missing_ok=True)

    def announce(self, cluster: Cluster) -> None:
        """Say how to reach us, once we answer."""
        text = msgspec.json.encode(cluster)
        write_atomic(self.folder / "last.json", text)
        write_atomic(self.kubeconfig, kubeconfig(cluster).encode())
        write_atomic(self._cluster, text)


def _locked(descriptor: int) -> bool:
    """Whether we have the lock; who only looks whether a cluster runs holds it for an instant, too."""
    looks = LOOKS
    while looks:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not _only_looked_at(descriptor):
                looks -= 1
            time.sleep(0.01)
        else:
            return True
    return False


def _only_looked_at(descriptor: int) -> bool:
    """Whether nobody has the lock for good: how long an instant lasts is up to the machine, so it is not counted."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return True


def kubeconfig(cluster: Cluster) -> str:
    """For kubectl and everybody else who speaks to a cluster."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [
                {
                    "name": CONTEXT,
                    "cluster": {
                        "server": cluster.secure_url,
                        "certificate-authority-data": base64.b64encode(cluster.certificate.encode()).decode(),
                    },
                }
            ],
            "users": [{"name": CONTEXT, "user": {"token": cluster.token}}],
            "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": NAMESPACE}}],
        },
        sort_keys=False,
    )
