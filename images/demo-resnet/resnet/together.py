"""The few things that workers do together beside training; alone, a worker does them by itself."""

import os

import paddle
import paddle.distributed as dist


def meet() -> tuple[int, int]:
    """Find the other workers; this one's rank, and how many there are."""
    if paddle.device.cuda.device_count() == 0:
        paddle.set_device("cpu")
        # Without this, plain python (not launch) gets no process group on a machine without GPUs. On one with GPUs it
        # would keep the workers from using NCCL.
        os.environ.setdefault("PADDLE_DISTRI_BACKEND", "gloo")
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1:
        # Not fleet.init: it makes a process group for every way to train in parallel, and where the machine is busy
        # gloo now and then mixes them up ("connect: connection refused", seen with 2.6.2). This makes one.
        dist.init_parallel_env()
    return dist.get_rank(), dist.get_world_size()


def sharing_gradients(network: paddle.nn.Layer) -> paddle.nn.Layer:
    """The network, whose gradients are from now on the mean over all workers."""
    return paddle.DataParallel(network) if dist.get_world_size() > 1 else network


def gathered(value: float) -> list[float]:
    """Everybody's value, by rank."""
    if dist.get_world_size() == 1:
        return [value]
    values: list[paddle.Tensor] = []
    dist.all_gather(values, paddle.to_tensor([value], dtype="int64" if isinstance(value, int) else "float64"))
    return [each.item() for each in values]  # not float(each): NumPy takes only a true scalar
