"""What does this machine have that pods can ask for? Cores, memory, GPUs; asked once, when the node starts."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from paddle_operator.kube.quantities import Amounts

MOST_PODS = 250
GPU = "nvidia.com/gpu"
ASKED_WITHIN_SECONDS = 5.0


@dataclass(frozen=True)
class Machine:
    """What all nodes of the cluster share, since they are one machine."""

    cpu: float
    memory_bytes: int
    pods: int = MOST_PODS
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)  # what a nodeSelector may ask for

    @property
    def capacity(self) -> dict[str, str]:
        gpus = {GPU: str(self.gpus)} if self.gpus else {}
        cpu = f"{round(self.cpu * 1000)}m" if self.cpu % 1 else str(int(self.cpu))
        return {"cpu": cpu, "memory": f"{self.memory_bytes // 1024}Ki", "pods": str(self.pods)} | gpus

    @property
    def amounts(self) -> Amounts:
        gpus = {GPU: Fraction(self.gpus)} if self.gpus else {}
        return {
            "cpu": Fraction(str(self.cpu)),
            "memory": Fraction(self.memory_bytes),
            "pods": Fraction(self.pods),
        } | gpus


class Gpus:
    """Which pod has which GPU, so that two pods do not train on the same one."""

    def __init__(self, count: int) -> None:
        self._owners: dict[int, str] = dict.fromkeys(range(count), "")

    def take(self, uid: str, count: int) -> tuple[int, ...]:
        """As many as are free, at most; the scheduler has seen to it that they are enough."""
        chosen = [gpu for gpu, owner in self._owners.items() if not owner][:count]
        self._owners |= dict.fromkeys(chosen, uid)
        return tuple(chosen)

    def give_back(self, uid: str) -> None:
        self._owners = {gpu: "" if owner == uid else owner for gpu, owner in self._owners.items()}


def this_machine(labels: Mapping[str, str] | None = None) -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(float(cores), _memory_bytes(), gpus=_gpus(), labels=labels or {})


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 8 * 1024**3  # a guess is better than a machine on which nothing fits


def _gpus() -> int:
    """As nvidia-smi counts them; where that is not there, by their device files."""
    if program := shutil.which("nvidia-smi"):
        try:
            told = subprocess.run(  # noqa: S603
                [program, "-L"], capture_output=True, text=True, check=True, timeout=ASKED_WITHIN_SECONDS
            )
        except (OSError, subprocess.SubprocessError):
            return 0  # a driver that does not answer trains nothing either
        return sum(line.startswith("GPU ") for line in told.stdout.splitlines())
    return len([each for each in Path("/dev").glob("nvidia[0-9]*") if each.name.removeprefix("nvidia").isdigit()])
