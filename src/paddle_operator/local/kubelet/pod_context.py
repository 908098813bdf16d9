"""What the containers of one pod share: the latest pod object, its address, its volumes, its /etc/hosts."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.events import ObjectReference, Recorder
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.cri import ImageSource, Mount, Sandbox
from paddle_operator.local.kubelet.container_env import ConfigReader, DownwardContext
from paddle_operator.local.kubelet.device_manager import gpu_env
from paddle_operator.local.kubelet.hosts_file import HostRecord, render_hosts
from paddle_operator.local.kubelet.machine import Machine
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod
from paddle_operator.local.kubelet.volume_manager import ClaimDirectories, VolumeManager

log = logging.getLogger(__name__)

HOSTS_PATH = "/etc/hosts"


@dataclass(frozen=True)
class PodDeps:
    """What all pods of the host share."""

    directory: Path  # the state directory
    images: ImageSource
    sandbox: Sandbox
    logs: LogFiles
    configs: ConfigReader
    claims: ClaimDirectories
    host_records: Callable[[], tuple[HostRecord, ...]]
    recorder: Recorder
    machine: Machine
    clock: Clock


class PodContext:
    def __init__(self, pod: LocalPod, node_address: str, deps: PodDeps, gpus: tuple[int, ...] = ()) -> None:
        self.pod = pod
        self.node_address = node_address
        self.address = node_address if pod.spec.host_network else ""
        self.deps = deps
        self.directory = deps.directory / "pods" / pod.uid
        self.volumes = VolumeManager(pod, self.directory / "_volumes", deps.configs, deps.claims)
        self.sandbox_ready = False  # its volumes and its /etc/hosts exist
        self.terminating = False  # no container is restarted any more
        self._gpus = gpus
        self._waiters: set[asyncio.Event] = set()
        self._hosts = ""

    @property
    def downward(self) -> DownwardContext:
        return DownwardContext(self.pod, self.node_address, self.address, self.deps.machine.allocatable)

    def emit_normal(self, reason: str, message: str) -> None:
        self.deps.recorder.normal(self._reference, reason, message)

    def emit_warning(self, reason: str, message: str) -> None:
        self.deps.recorder.warning(self._reference, reason, message)

    @property
    def _reference(self) -> ObjectReference:
        return ObjectReference("v1", "Pod", self.pod.key, self.pod.uid)

    def notify(self) -> None:
        """Wake all `wait_for_change`: the pod, a ConfigMap, a Secret or a claim has changed."""
        for waiter in self._waiters:
            waiter.set()

    async def wait_for_change(self, timeout_seconds: float | None = None) -> None:
        """Return at the next `notify`, or after the timeout."""
        waiter = asyncio.Event()
        timer = None if timeout_seconds is None else self.deps.clock.call_later(timeout_seconds, waiter.set)
        self._waiters.add(waiter)
        try:
            await waiter.wait()
        finally:
            self._waiters.discard(waiter)
            if timer:
                timer.cancel()

    def set_up(self) -> None:
        """Create the pod's directories and volumes. Raises MountError or OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)  # it contains Secrets
        self.volumes.set_up(self.downward)

    def refresh(self) -> None:
        """Update the files of running containers after a change of ConfigMaps, Secrets or Services."""
        if not self.sandbox_ready:
            return
        try:
            self.volumes.refresh(self.downward)
            self.write_hosts()
        except OSError as error:
            log.warning("pod files could not be refreshed", extra={"key": str(self.pod.key), "error": str(error)})

    def write_hosts(self) -> Path:
        """Write /etc/hosts in place, since containers mount the file and not its name. Raises OSError."""
        path = self.directory / "_hosts"
        host_file = _host_file() if self.pod.spec.host_network else ""
        text = render_hosts(self.pod, self.address, self.deps.host_records(), host_file)
        if text != self._hosts:
            with path.open("r+b" if path.exists() else "xb") as file:
                file.write(text.encode())
                file.truncate()
            self._hosts = text
        return path

    def mounts(self, container: ContainerSpec, variables: dict[str, str]) -> tuple[Mount, ...]:
        """A container's mounts: its volumes, and /etc/hosts unless a volume covers it. Raises MountError or OSError."""
        mounts = self.volumes.mounts(container, variables)
        if any(mount.target == HOSTS_PATH for mount in mounts):
            return mounts
        return (Mount(self.write_hosts(), HOSTS_PATH), *mounts)

    def gpu_env(self, container: ContainerSpec) -> dict[str, str]:
        return gpu_env(self.pod, container.name, self._gpus)


def _host_file() -> str:
    try:
        return Path(HOSTS_PATH).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
