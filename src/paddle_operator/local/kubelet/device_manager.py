"""Which pod has which GPU? Two pods never share one, and a container sees only its own."""

from collections.abc import Sequence

from paddle_operator.kube.quantities import amount
from paddle_operator.local.kubelet.machine import GPU
from paddle_operator.local.kubelet.pod import ContainerSpec, LocalPod


class DeviceManager:
    """Allocates the host's GPUs to pods."""

    def __init__(self, count: int) -> None:
        self._owners: dict[int, str] = dict.fromkeys(range(count), "")

    def allocate(self, uid: str, count: int) -> tuple[int, ...]:
        """At most as many as are free; the scheduler has checked that they suffice."""
        gpus = [gpu for gpu, owner in self._owners.items() if not owner][:count]
        self._owners |= dict.fromkeys(gpus, uid)
        return tuple(gpus)

    def release(self, uid: str) -> None:
        self._owners = {gpu: "" if owner == uid else owner for gpu, owner in self._owners.items()}


def gpu_env(pod: LocalPod, container: str, gpus: Sequence[int]) -> dict[str, str]:
    """Variables that limit a container to its share of the pod's GPUs; empty if it requests none."""
    start = 0
    for each in pod.spec.containers:
        count = _container_gpus(each)
        if each.name == container and count:
            visible = ",".join(str(gpu) for gpu in gpus[start : start + count])
            return {"CUDA_VISIBLE_DEVICES": visible, "NVIDIA_VISIBLE_DEVICES": visible}
        start += count
    return {}


def requested_gpus(pod: LocalPod) -> int:
    return sum(_container_gpus(container) for container in pod.spec.containers)


def _container_gpus(container: ContainerSpec) -> int:
    return int(amount(container.resources.limits.get(GPU, 0)))
