"""Which cores, memory and GPUs does this host have? Read once, when the node starts."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from paddle_operator.kube.quantities import Amounts

MAX_PODS = 250
GPU = "nvidia.com/gpu"
NVIDIA_SMI_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True)
class Machine:
    """What all nodes of the cluster share, since they all run on it."""

    cpu: float
    memory_bytes: int
    pods: int = MAX_PODS
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)  # node labels, for nodeSelector

    @property
    def capacity(self) -> dict[str, str]:
        gpus = {GPU: str(self.gpus)} if self.gpus else {}
        cpu = f"{round(self.cpu * 1000)}m" if self.cpu % 1 else str(int(self.cpu))
        return {"cpu": cpu, "memory": f"{self.memory_bytes // 1024}Ki", "pods": str(self.pods)} | gpus

    @property
    def allocatable(self) -> Amounts:
        gpus = {GPU: Fraction(self.gpus)} if self.gpus else {}
        return {
            "cpu": Fraction(str(self.cpu)),
            "memory": Fraction(self.memory_bytes),
            "pods": Fraction(self.pods),
        } | gpus


def detect_machine(labels: Mapping[str, str] | None = None) -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(float(cores), _memory_bytes(), gpus=_count_gpus(), labels=labels or {})


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 8 * 1024**3  # a guess is better than a host on which no pod fits


def _count_gpus() -> int:
    """As nvidia-smi counts them; without it, by their device files."""
    if program := shutil.which("nvidia-smi"):
        try:
            listing = subprocess.run(  # noqa: S603
                [program, "-L"], capture_output=True, text=True, check=True, timeout=NVIDIA_SMI_TIMEOUT_SECONDS
            )
        except (OSError, subprocess.SubprocessError):
            return 0  # training needs a driver that responds
        return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return len([each for each in Path("/dev").glob("nvidia[0-9]*") if each.name.removeprefix("nvidia").isdigit()])
