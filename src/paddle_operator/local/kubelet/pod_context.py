"""What the containers of one pod share: the pod as it is asked for now, its address, its volumes, its /etc/hosts."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddle_operator.kube.clock import Clock
from paddle_operator.kube.events import Recorder, Reference
from paddle_operator.kube.quantities import amount
from paddle_operator.local.container_logs import LogFiles
from paddle_operator.local.cri import Images, Mount, Sandbox
from paddle_operator.local.kubelet.container_env import Contents, Facts
from paddle_operator.local.kubelet.hosts_file import Name, hosts_text
from paddle_operator.local.kubelet.machine import GPU, Machine
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod
from paddle_operator.local.kubelet.volume_manager import Claims, Volumes

log = logging.getLogger(__name__)

HOSTS = "/etc/hosts"


@dataclass(frozen=True)
class PodDeps:
    """What the pods of the machine share."""

    folder: Path  # the state folder
    images: Images
    sandbox: Sandbox
    logs: LogFiles
    contents: Contents
    claims: Claims
    names: Callable[[], tuple[Name, ...]]  # what resolves in the cluster now
    recorder: Recorder
    machine: Machine
    clock: Clock


class PodContext:
    def __init__(self, pod: LocalPod, node_address: str, around: PodDeps, gpus: tuple[int, ...] = ()) -> None:
        self.pod = pod
        self.node_address = node_address
        self.address = node_address if pod.spec.host_network else ""
        self.around = around
        self.folder = around.folder / "pods" / pod.uid
        self.volumes = Volumes(pod, self.folder / "_volumes", around.contents, around.claims)
        self.ready = False  # its volumes and its /etc/hosts are there
        self.ending = False  # nothing is restarted any more
        self.touch: Callable[[], None] = lambda: None  # told whenever the pod's status may be another
        self._gpus = gpus
        self._waiters: set[asyncio.Event] = set()
        self._hosts = ""

    @property
    def facts(self) -> Facts:
        return Facts(self.pod, self.node_address, self.address, self.around.machine.amounts)

    def normal(self, reason: str, note: str) -> None:
        self.around.recorder.normal(self._reference, reason, note)

    def warning(self, reason: str, note: str) -> None:
        self.around.recorder.warning(self._reference, reason, note)

    @property
    def _reference(self) -> Reference:
        return Reference("v1", "Pod", self.pod.key, self.pod.uid)

    def nudge(self) -> None:
        """Something that somebody may wait for has changed: the pod itself, a ConfigMap, a claim."""
        for waiter in self._waiters:
            waiter.set()

    async def nudged(self, seconds: float | None = None) -> None:
        """Return at the next nudge, or after so many seconds."""
        waiter = asyncio.Event()
        timer = None if seconds is None else self.around.clock.call_later(seconds, waiter.set)
        self._waiters.add(waiter)
        try:
            await waiter.wait()
        finally:
            self._waiters.discard(waiter)
            if timer:
                timer.cancel()

    def set_up(self) -> None:
        """Make the folders. Raises MountError or OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # Secrets are in it
        self.volumes.set_up(self.facts)

    def refresh(self) -> None:
        """Let running containers see what has changed in their ConfigMaps, Secrets and names."""
        if not self.ready:
            return
        try:
            self.volumes.refresh(self.facts)
            self.write_hosts()
        except OSError as error:
            log.warning("could not refresh a pod's files", extra={"key": str(self.pod.key), "why": str(error)})

    def write_hosts(self) -> Path:
        """In place, since containers see the file and not its name. Raises OSError."""
        path = self.folder / "_hosts"
        machine = _machine_hosts() if self.pod.spec.host_network else ""
        text = hosts_text(self.pod, self.address, self.around.names(), machine)
        if text != self._hosts:
            with path.open("r+b" if path.exists() else "xb") as file:
                file.write(text.encode())
                file.truncate()
            self._hosts = text
        return path

    def mounts(self, container: ContainerSpec, variables: dict[str, str]) -> tuple[Mount, ...]:
        """Volumes, and /etc/hosts where no volume covers it. Raises MountError or OSError."""
        mounts = self.volumes.mounts(container, variables)
        if any(mount.target == HOSTS for mount in mounts):
            return mounts
        return (Mount(self.write_hosts(), HOSTS), *mounts)

    def gpus_of(self, container: ContainerSpec) -> dict[str, str]:
        return gpu_variables(self.pod, container.name, self._gpus)


def gpu_variables(pod: LocalPod, container: str, gpus: Sequence[int]) -> dict[str, str]:
    """What shows a container the GPUs that it asked for, and no others; nothing where it asked for none."""
    start = 0
    for each in pod.spec.containers:
        count = _gpu_count(each)
        if each.name == container and count:
            shown = ",".join(str(gpu) for gpu in gpus[start : start + count])
            return {"CUDA_VISIBLE_DEVICES": shown, "NVIDIA_VISIBLE_DEVICES": shown}
        start += count
    return {}


def gpus_asked(pod: LocalPod) -> int:
    return sum(_gpu_count(container) for container in pod.spec.containers)


def _gpu_count(container: ContainerSpec) -> int:
    return int(amount(container.resources.limits.get(GPU, 0)))


def _machine_hosts() -> str:
    try:
        return Path(HOSTS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
