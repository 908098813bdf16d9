"""The few things that workers do together beside training; alone, a worker does them by itself."""

import os

import paddle
import paddle.distributed as dist
from paddle.distributed import fleet


def meet() -> tuple[int, int]:
    """Find the other workers; this one's rank, and how many there are."""
    if paddle.device.cuda.device_count() == 0:
        paddle.set_device("cpu")
        # Without this, plain python (not launch) gets no process group on a machine without GPUs. On one with GPUs it
        # would keep the workers from using NCCL.
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
    fleet.init(is_collective=True, log_level="WARNING")
    return fleet.worker_index(), fleet.worker_num()


def gathered(value: float) -> list[float]:
    """Everybody's value, by rank."""
    if fleet.worker_num() == 1:
        return [value]
    values: list[paddle.Tensor] = []
    dist.all_gather(values, paddle.to_tensor([value], dtype="int64" if isinstance(value, int) else "float64"))
    return [each.item() for each in values]  # not float(each): NumPy takes only a true scalar
